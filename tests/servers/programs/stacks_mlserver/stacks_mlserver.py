"""A custom runtime of MLServer with ONNX Runtime; the variable ONNX is the model's path."""

import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Onnx(MLModel):
    async def load(self):
        self._session = onnxruntime.InferenceSession(os.environ["ONNX"], providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload):
        (wanted,) = self._session.get_inputs()
        (found,) = self._session.run(None, {wanted.name: np.ones(wanted.shape, np.float32)})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("found", found)])
