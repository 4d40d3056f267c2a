"""Work of the stack that the first argument names; the second is a small ONNX model. As in libraries.py."""

import ctypes
import sys
from pathlib import Path

import units
from units import done


def torch(model):
    import torch as library

    layer = library.nn.Linear(600, 600)
    rows = library.ones(600, 600)

    def work():
        with library.inference_mode():
            library.nn.functional.softmax(layer(rows).exp(), dim=1)
        return library.get_num_threads()

    return work


def torch_compile(model):
    from torch._inductor.async_compile import AsyncCompile

    return lambda: done(AsyncCompile.process_pool().submit(abs, 1).result())


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
    return lambda: done(encoder.encode(["hello world " * 40] * 64, batch_size=64))


def scipy(model):
    import numpy as np
    from scipy import linalg

    matrix = np.eye(600) + np.ones((600, 600))
    return lambda: done(linalg.solve(matrix, np.ones(600)))


def mkl(model):
    library = ctypes.CDLL(str(next(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))), mode=ctypes.RTLD_GLOBAL)
    size = 600
    matrix = (ctypes.c_double * (size * size))(*[1.0] * (size * size))
    one, zero = ctypes.c_double(1), ctypes.c_double(0)
    product = (ctypes.c_double * (size * size))()
    # Rows first, nothing transposed.
    shape = (101, 111, 111, size, size, size)
    return lambda: done(library.cblas_dgemm(*shape, one, matrix, size, matrix, size, zero, product, size))


def scikit_learn(model):
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score

    rows = np.random.default_rng(7).standard_normal((2000, 20))
    model = HistGradientBoostingClassifier(max_iter=2)
    return lambda: done(cross_val_score(model, rows, rows[:, 0] > 0, n_jobs=-1))


def onnxruntime_openvino(model):
    return _onnx(model, "OpenVINOExecutionProvider")


def tensorflow_cpu(model):
    import tensorflow as tf

    product = tf.function(lambda values: tf.nn.relu(values @ values) + tf.nn.softmax(values @ values))
    rows = tf.random.normal((600, 600))
    return lambda: done(product(rows).numpy())


def ray(model):
    import ray as library

    library.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)

    @library.remote(num_cpus=0)
    class Served:
        def __init__(self):
            self._sessions = [_onnx(model) for _ in range(4)]

        def run(self):
            for run in self._sessions:
                run()

    served = [Served.remote() for _ in range(4)]
    return lambda: done(library.get([one.run.remote() for one in served]))


def pyspark(model):
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import pandas_udf

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

    @pandas_udf("long")
    def more(values: pd.Series) -> pd.Series:
        return values + 1

    rows = session.range(1000).select(more("id"))
    return lambda: done(rows.collect())


def _onnx(model, provider="CPUExecutionProvider"):
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=[provider])
    (wanted,) = session.get_inputs()
    rows = {wanted.name: np.ones(wanted.shape, np.float32)}
    return lambda: done(session.run(None, rows))


# Workers that are started by spawn import this file too.
if __name__ == "__main__":
    units.serve(globals()[sys.argv[1].replace("-", "_").replace(".", "_")](sys.argv[2]))
