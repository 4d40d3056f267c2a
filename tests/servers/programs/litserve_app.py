"""A LitServe server with one worker, as its documentation writes one."""

import sys

import litserve


class Service(litserve.LitAPI):
    def setup(self, device):
        import serving

        serving.session()

    def predict(self, request):
        import serving

        return {"said": serving.describe().decode()}


if __name__ == "__main__":
    litserve.LitServer(Service(), accelerator="cpu").run(port=int(sys.argv[1]), generate_client_file=False)
