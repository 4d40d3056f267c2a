"""The Deployment's program: it loads the model as code does that sets nothing, says what it runs with, and waits."""

import signal
from pathlib import Path

import onnxruntime

TASKS = Path("/proc/self/task")

before = len(list(TASKS.iterdir()))
session = onnxruntime.InferenceSession("/models/ranker.onnx", providers=["CPUExecutionProvider"])
threads = len(list(TASKS.iterdir())) - before + 1
print(
    f"ready: ONNX Runtime {onnxruntime.__version__} runs the model with {threads} thread{'s' * (threads > 1)}",
    flush=True,
)
signal.pause()
