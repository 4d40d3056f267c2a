"""The agent's reflector of one object against a scripted server."""

import threading

from raddle_operator.agent.reflector import Backoff, Reflector


class Restored:
    """Stands in for the client: an API server that stops, and comes back with the object as it was at a lower version."""

    def __init__(self):
        self.asked = []
        self.silent = threading.Event()

    def get(self, path, query, accept):
        self.asked.append("list")
        version = "90" if len(self.asked) == 1 else "50"
        return {"metadata": {"resourceVersion": version}, "items": [{"metadata": {"resourceVersion": version}}]}

    def watch(self, path, query, accept, *, timeout_s):
        self.asked.append(f"watch {query['resourceVersion']}")
        if len(self.asked) > 2:
            self.silent.set()
            threading.Event().wait()
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "100"}}}


def test_a_watch_that_ends_before_its_time_is_followed_by_a_list():
    server = Restored()
    reflector = Reflector(
        server, "/nodes", "metadata.name=a", keep=dict, changed=lambda: None, backoff=Backoff(0.001, 0.001)
    )
    threading.Thread(target=reflector.run, daemon=True).start()
    assert server.silent.wait(10)
    assert server.asked == ["list", "watch 90", "list", "watch 50"]
    assert reflector.value == {"metadata": {"resourceVersion": "50"}}
