"""The Deployment's program: it loads the model as code does that sets nothing, says what it runs with, and waits."""

import os
import signal

import onnxruntime

before = len(os.listdir("/proc/self/task"))
session = onnxruntime.InferenceSession("/models/ranker.onnx", providers=["CPUExecutionProvider"])
threads = len(os.listdir("/proc/self/task")) - before + 1
print(f"ready: ONNX Runtime {onnxruntime.__version__} runs the model with {threads} threads", flush=True)
signal.pause()
