"""A service of BentoML with ONNX Runtime; the variable ONNX is the model's path."""

import os

import bentoml
import numpy as np
import onnxruntime


@bentoml.service
class Onnx:
    def __init__(self) -> None:
        self._session = onnxruntime.InferenceSession(os.environ["ONNX"], providers=["CPUExecutionProvider"])

    @bentoml.api
    def predict(self) -> int:
        (wanted,) = self._session.get_inputs()
        return len(self._session.run(None, {wanted.name: np.ones(wanted.shape, np.float32)}))
