"""A predictor of KServe with ONNX Runtime: the first argument is the model's path, the second the port."""

import sys

import numpy as np
import onnxruntime
from kserve import Model, ModelServer


class Onnx(Model):
    def load(self):
        self._session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
        self.ready = True
        return True

    def predict(self, payload, headers=None, response_headers=None):
        (wanted,) = self._session.get_inputs()
        return {"predictions": len(self._session.run(None, {wanted.name: np.ones(wanted.shape, np.float32)}))}


if __name__ == "__main__":
    model = Onnx("tiny")
    model.load()
    ModelServer(http_port=int(sys.argv[2]), enable_grpc=False).start([model])
