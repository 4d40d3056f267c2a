"""One unit of parallel work of the library that the first argument names; the second is a small ONNX model."""

import json
import sys


def onnxruntime(model):
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    session.run(None, {wanted.name: np.ones(wanted.shape, np.float32)})


def numpy(model):
    import numpy as np

    matrix = np.ones((600, 600))
    matrix @ matrix


def scikit_learn(model):
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows = np.random.default_rng(7).standard_normal((20000, 20))
    HistGradientBoostingClassifier(max_iter=2).fit(rows, rows[:, 0] > 0).predict(rows)


says = globals()[sys.argv[1].replace("-", "_")](sys.argv[2])
print(json.dumps({"says": says}), flush=True)
sys.stdin.read()
