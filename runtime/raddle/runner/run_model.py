"""Runs one model each time it is asked to: `run_model.py MODEL INPUTS plain|io-binding SOCKET`.

It makes a session as code does that sets nothing, so that the environment and the shim decide. Then it connects to the
Unix socket and sends a line of JSON: `runtime`, `version`, `providers`, `threads` (those that the session has, the
caller with them), of TorchScript how many `forks` are written in it, or `error`. Each line that comes is a request; it
is sent back once the model has run. It ends when the other side closes. run_model.cjs and run_model.c speak the same.

INPUTS is a folder. Each line of its file `inputs` is `TYPE DIMENSIONS FILE NAME`: numpy's name of the type, the
dimensions with commas between them (`-` for none), the file with the values as they lie in memory; of strings, in UTF-8
and each with a zero behind it.
"""

import importlib
import json
import os
import socket
import sys
from typing import Any, Callable, Dict, List, Tuple

# Lazy work of the first runs belongs to the start.
WARM_UP_RUNS = 3
# Names of torch's types, where they are others than numpy's.
_TORCH_TYPES = {"bool": "bool", "float16": "half"}
# Of those that a build offers: TensorRT is offered without its libraries too, Azure runs no model of its own.
_LEFT_OUT = ("TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider", "AzureExecutionProvider")

Input = Tuple[str, str, List[int], bytes]


def inputs(folder: str) -> List[Input]:
    """Name, type, dimensions and values of each input."""
    result = []
    with open(os.path.join(folder, "inputs"), encoding="utf-8") as lines:
        for line in lines:
            kind, dims, file, name = line.rstrip("\n").split(" ", 3)
            with open(os.path.join(folder, file), "rb") as values:
                result.append((name, kind, [] if dims == "-" else [int(dim) for dim in dims.split(",")], values.read()))
    return result


def onnx(model: str, given: List[Input], io_binding: bool) -> Tuple[Callable[[], object], Dict[str, Any]]:
    """What runs an ONNX model once, and what it says of itself."""
    numpy: Any = importlib.import_module("numpy")
    onnxruntime: Any = importlib.import_module("onnxruntime")
    feeds = {name: _array(numpy, kind, dims, values) for name, kind, dims, values in given}
    before = threads()
    providers = [name for name in onnxruntime.get_available_providers() if name not in _LEFT_OUT]
    session = onnxruntime.InferenceSession(model, providers=providers)
    said = {"runtime": "onnxruntime", "version": onnxruntime.__version__, "providers": session.get_providers()}
    said["threads"] = threads() - before + 1
    if not io_binding:
        return lambda: session.run(None, feeds), said
    binding = session.io_binding()
    device = "cuda" if "CUDAExecutionProvider" in said["providers"] else "cpu"
    for output in session.get_outputs():
        binding.bind_output(output.name, device)

    def run() -> None:
        # As a program has new values for each request.
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)

    return run, said


def _array(numpy: Any, kind: str, dims: List[int], values: bytes) -> Any:
    if kind == "str":
        return numpy.array(_strings(values), dtype=object).reshape(dims)
    return numpy.frombuffer(values, dtype=kind).reshape(dims)


def _strings(values: bytes) -> List[str]:
    return values.decode("utf-8").split("\0")[:-1]


def torch_jit(model: str, given: List[Input]) -> Tuple[Callable[[], object], Dict[str, Any]]:
    """What runs a TorchScript model once, its inputs in their order, and what it says of itself."""
    torch: Any = importlib.import_module("torch")
    made = []
    for _, kind, dims, values in given:
        dtype = getattr(torch, _TORCH_TYPES.get(kind, kind))
        made.append(torch.frombuffer(bytearray(values), dtype=dtype).reshape(dims))
    network = torch.jit.load(model).eval()

    def run() -> None:
        with torch.no_grad():
            network(*made)

    before = threads()
    run()
    said = {"runtime": "torch", "version": str(torch.__version__), "providers": [], "threads": threads() - before + 1}
    # What it may run on the inter-op threads, beside the caller.
    said["forks"] = len(network.inlined_graph.findAllNodes("prim::fork"))
    return run, said


def threads() -> int:
    """How many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def serve(path: str, run: Callable[[], object], said: Dict[str, Any]) -> None:
    """Tells that it is ready, and answers until the other side closes."""
    for _ in range(WARM_UP_RUNS):
        run()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(path)
        _send(link, said)
        # One request at a time, so a line is never cut in two; recv, since a file's buffers would take time.
        request = link.recv(64)
        while request:
            run()
            link.sendall(request)
            request = link.recv(64)


def _send(link: socket.socket, said: Dict[str, Any]) -> None:
    link.sendall(json.dumps(said).encode() + b"\n")


def main(arguments: List[str]) -> int:
    """The exit status."""
    model, folder, how, path = arguments
    try:
        given = inputs(folder)
        if model.endswith((".pt", ".pth", ".ts", ".torchscript")):
            run, said = torch_jit(model, given)
        else:
            run, said = onnx(model, given, how == "io-binding")
        serve(path, run, said)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except Exception as error:
        where = f" ({sys.executable})" if isinstance(error, ImportError) else ""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.connect(path)
            _send(link, {"error": f"{type(error).__name__}: {error}{where}"})
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Runtimes may take long to end, or crash.
    os._exit(status)
