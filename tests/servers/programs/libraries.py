"""Parallel work of the library that the first argument names; the second is a folder of small models.

A function returns one that does a unit of the work and returns what the library says that it counts, None where it says
nothing.
"""

import re
import sys

import units
from units import done


def onnxruntime(models):
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{models}/model.onnx", providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    rows = {wanted.name: np.ones(wanted.shape, np.float32)}
    return lambda: done(session.run(None, rows))


def numpy(models):
    import numpy as np

    matrix = np.ones((600, 600))
    return lambda: done(matrix @ matrix)


def scipy(models):
    import numpy as np
    import scipy.linalg

    matrix = np.random.default_rng(7).standard_normal((600, 600))
    return lambda: done(scipy.linalg.lu_factor(matrix))


def table():
    import numpy as np

    rows = np.random.default_rng(7).standard_normal((20000, 20))
    return rows, rows[:, 0] > 0


def scikit_learn(models):
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = table()
    return lambda: done(HistGradientBoostingClassifier(max_iter=2).fit(rows, labels).predict(rows))


def scikit_learn_fit(models):
    """A short one, since threads of several processes that wait for each other by spinning take seconds for it."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = table()
    model = HistGradientBoostingClassifier(max_iter=1, max_leaf_nodes=4, early_stopping=False)
    return lambda: done(model.fit(rows[:5000], labels[:5000]))


def scikit_learn_predict(models):
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = table()
    model = HistGradientBoostingClassifier(max_iter=50, early_stopping=False).fit(rows, labels)
    return lambda: done(model.predict(rows))


def kmeans(models):
    from sklearn.cluster import KMeans

    rows, _ = table()
    return lambda: done(KMeans(16, n_init=1, max_iter=10, random_state=1).fit(rows))


def xgboost_predict(models):
    import xgboost

    rows, labels = table()
    model = xgboost.XGBClassifier(n_estimators=50).fit(rows, labels)
    return lambda: done(model.predict(rows))


def lightgbm_predict(models):
    import lightgbm

    rows, labels = table()
    model = lightgbm.LGBMClassifier(n_estimators=50, verbose=-1).fit(rows, labels)
    return lambda: done(model.predict(rows))


def xgboost_cpu(models):
    import xgboost

    rows, labels = table()
    return lambda: done(xgboost.XGBClassifier(n_estimators=2).fit(rows, labels).predict(rows))


def xgboost_cpu_one(models):
    import xgboost

    rows, labels = table()
    model = xgboost.XGBClassifier(n_estimators=200).fit(rows, labels)
    return lambda: done(model.predict(rows[:1]))


def lightgbm(models):
    import lightgbm

    rows, labels = table()
    return lambda: done(lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(rows, labels).predict(rows))


def numexpr(models):
    import numexpr
    import numpy as np

    rows = np.ones(2000000)
    return lambda: done(numexpr.evaluate("rows * 2 + rows", {"rows": rows}), says=numexpr.nthreads)


def joblib(models):
    import joblib

    def work():
        joblib.Parallel(n_jobs=-1)(joblib.delayed(abs)(one) for one in range(8))
        return joblib.cpu_count()

    return work


def polars(models):
    import polars as pl

    frame = pl.DataFrame({"a": range(200000)}).lazy().group_by(pl.col("a") % 100).agg(pl.len())
    return lambda: done(frame.collect(), says=pl.thread_pool_size())


def tokenizers(models):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return lambda: done(tokenizer.encode_batch(["a b a b"] * 1000))


def jax(models):
    import jax

    matrix = jax.numpy.ones((600, 600))
    product = jax.jit(lambda one: one @ one)
    return lambda: done(product(matrix).block_until_ready())


def numba(models):
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def total(rows):
        found = 0.0
        for one in numba.prange(len(rows)):
            found += rows[one]
        return found

    rows = np.ones(10_000_000)
    return lambda: done(total(rows), says=numba.get_num_threads())


def ctranslate2(models):
    import ctranslate2

    model = ctranslate2.Translator(f"{models}/ctranslate2", "cpu", inter_threads=2)
    how = {"max_batch_size": 1, "max_decoding_length": 2, "beam_size": 1}
    return lambda: done(model.translate_batch([["a", "b"]] * 8, **how))


def onnxruntime_genai(models):
    import onnxruntime_genai

    return lambda: done(onnxruntime_genai.Model(f"{models}/onnxruntime_genai"))


def opencv_python_headless(models):
    import cv2
    import numpy as np

    picture = np.ones((2000, 2000, 3), np.uint8)
    return lambda: done(cv2.GaussianBlur(picture, (15, 15), 3), says=cv2.getNumThreads())


def vectors():
    import numpy as np

    return np.random.default_rng(7).standard_normal((20000, 64)).astype("f")


def usearch(models):
    import numpy as np
    from usearch.index import Index

    rows = vectors()
    return lambda: done(Index(ndim=64).add(np.arange(len(rows)), rows))


def hnswlib(models):
    import hnswlib

    rows = vectors()

    def work():
        index = hnswlib.Index(space="l2", dim=64)
        index.init_index(len(rows))
        index.add_items(rows)
        return index.num_threads

    return work


def faiss_cpu(models):
    import faiss

    rows = vectors()
    index = faiss.IndexFlatL2(64)
    index.add(rows)
    return lambda: done(index.search(rows[:200], 4), says=faiss.omp_get_max_threads())


def openvino(models):
    import numpy as np
    import openvino

    model = openvino.Core().compile_model(f"{models}/model.onnx", "CPU")
    rows = {0: np.ones((64, 256), "f")}
    return lambda: done(model(rows), says=int(model.get_property("INFERENCE_NUM_THREADS")))


def concurrent_futures(models):
    import hashlib
    import time
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor()
    # A thread is started only where no other is free.
    list(pool.map(time.sleep, [0.05] * 64))
    data = bytes(1 << 20)
    return lambda: done(list(pool.map(lambda one: hashlib.sha256(one).digest(), [data] * 64)))


def multiprocessing(models):
    from multiprocessing import Pool

    pool = Pool()
    return lambda: done(pool.map(abs, range(64)))


if __name__ == "__main__":
    units.serve(globals()[re.sub("[-.]", "_", sys.argv[1])](sys.argv[2]))
