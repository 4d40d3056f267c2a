"""One unit of work of the stack that the first argument names; the second is a small ONNX model."""

import ctypes
import sys
from pathlib import Path


def torch(model):
    import torch as library

    with library.inference_mode():
        layer = library.nn.Linear(600, 600)
        library.nn.functional.softmax(layer(library.ones(600, 600)).exp(), dim=1)


def torch_compile(model):
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.process_pool().submit(abs, 1).result()


def sentence_transformers(model):
    import torch as library
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "hello": 2, "world": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained("tiny")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=4, **sizes)).save_pretrained("tiny")

    from sentence_transformers import SentenceTransformer
    from sentence_transformers import models as layers

    of_words = layers.Transformer("tiny")
    library.manual_seed(7)
    encoder = SentenceTransformer(modules=[of_words, layers.Pooling(64)], device="cpu")
    encoder.encode(["hello world " * 40] * 64, batch_size=64)


def scipy(model):
    import numpy as np
    from scipy import linalg

    matrix = np.eye(600) + np.ones((600, 600))
    linalg.solve(matrix, np.ones(600))


def mkl(model):
    library = ctypes.CDLL(str(next(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))), mode=ctypes.RTLD_GLOBAL)
    size = 600
    matrix = (ctypes.c_double * (size * size))(*[1.0] * (size * size))
    one = ctypes.c_double(1)
    # Rows first, nothing transposed.
    library.cblas_dgemm(101, 111, 111, size, size, size, one, matrix, size, matrix, size, one, matrix, size)


def scikit_learn(model):
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score

    rows = np.random.default_rng(7).standard_normal((2000, 20))
    cross_val_score(HistGradientBoostingClassifier(max_iter=2), rows, rows[:, 0] > 0, n_jobs=-1)


def onnxruntime_openvino(model):
    _ask_onnx(model, "OpenVINOExecutionProvider")


def tensorflow_cpu(model):
    import tensorflow as tf

    product = tf.function(lambda values: tf.nn.relu(values @ values) + tf.nn.softmax(values @ values))
    product(tf.random.normal((600, 600)))


def ray(model):
    import ray as library

    library.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)

    @library.remote(num_cpus=0)
    class Served:
        def __init__(self):
            self._sessions = [_ask_onnx(model) for _ in range(4)]

        def ready(self):
            return True

    served = [Served.remote() for _ in range(4)]
    library.get([one.ready.remote() for one in served])
    return served


def pyspark(model):
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import pandas_udf

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

    @pandas_udf("long")
    def more(values: pd.Series) -> pd.Series:
        return values + 1

    session.range(1000).select(more("id")).collect()


def _ask_onnx(model, provider="CPUExecutionProvider"):
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=[provider])
    (wanted,) = session.get_inputs()
    session.run(None, {wanted.name: np.ones(wanted.shape, np.float32)})
    return session


# Workers that are started by spawn import this file too.
if __name__ == "__main__":
    # What it returns ends when nobody has it any more.
    kept = globals()[sys.argv[1].replace("-", "_").replace(".", "_")](sys.argv[2])
    print("{}", flush=True)
    sys.stdin.read()
