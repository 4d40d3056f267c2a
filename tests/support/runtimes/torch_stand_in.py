"""A stand-in for torch, for what the real one can't show here."""

import types

# What stands in for torch's own functions here has frames of its.
__name__ = "torch.stand_in"


class Torch(types.ModuleType):
    """As much of torch as the adapter touches. `pool` is the inter-op count that was set, as in torch: once; `asked` all calls."""

    def __init__(self, version):
        super().__init__("torch")
        self.__version__ = version
        self.pool = None
        self.asked = []
        self._C = types.SimpleNamespace(
            ScriptMethod=type("ScriptMethod", (), {"__call__": lambda _: "ran"}),
            ScriptFunction=type("ScriptFunction", (), {"__call__": lambda _: "ran"}),
            fork=lambda: "forked",
        )
        self.set_num_interop_threads = self._C.set_num_interop_threads = self._set
        self.get_num_threads = lambda: 64
        self.get_num_interop_threads = self._C.get_num_interop_threads = lambda: self.pool or 64

    def _set(self, count):
        self.asked.append(count)
        if self.pool is not None:
            raise RuntimeError("cannot set number of interop threads after parallel work has started")
        self.pool = count
