"""One piece of parallel work of the library that the first argument names; the second is a folder of small models.

A function returns what the library says that it counts, None where it says nothing.
"""

import json
import re
import sys


def onnxruntime(models):
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{models}/model.onnx", providers=["CPUExecutionProvider"])
    kept.append(session)
    (wanted,) = session.get_inputs()
    session.run(None, {wanted.name: np.ones(wanted.shape, np.float32)})


def numpy(models):
    import numpy as np

    matrix = np.ones((600, 600))
    matrix @ matrix


def scipy(models):
    import numpy as np
    import scipy.linalg

    scipy.linalg.lu_factor(np.random.default_rng(7).standard_normal((600, 600)))


def table():
    import numpy as np

    rows = np.random.default_rng(7).standard_normal((20000, 20))
    return rows, rows[:, 0] > 0


def scikit_learn(models):
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = table()
    HistGradientBoostingClassifier(max_iter=2).fit(rows, labels).predict(rows)


def xgboost_cpu(models):
    import xgboost

    rows, labels = table()
    model = xgboost.XGBClassifier(n_estimators=2).fit(rows, labels)
    model.predict(rows)


def lightgbm(models):
    import lightgbm

    rows, labels = table()
    lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(rows, labels).predict(rows)


def numexpr(models):
    import numexpr
    import numpy as np

    rows = np.ones(2000000)
    numexpr.evaluate("rows * 2 + rows", {"rows": rows})
    return numexpr.nthreads


def joblib(models):
    import joblib

    joblib.Parallel(n_jobs=-1)(joblib.delayed(abs)(one) for one in range(8))
    return joblib.cpu_count()


def polars(models):
    import polars as pl

    pl.DataFrame({"a": range(200000)}).lazy().group_by(pl.col("a") % 100).agg(pl.len()).collect()
    return pl.thread_pool_size()


def tokenizers(models):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.encode_batch(["a b a b"] * 1000)
    kept.append(tokenizer)


def jax(models):
    import jax

    matrix = jax.numpy.ones((600, 600))
    jax.jit(lambda one: one @ one)(matrix).block_until_ready()


def numba(models):
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def total(rows):
        found = 0.0
        for one in numba.prange(len(rows)):
            found += rows[one]
        return found

    total(np.ones(100000))
    return numba.get_num_threads()


def ctranslate2(models):
    import ctranslate2

    model = ctranslate2.Translator(f"{models}/ctranslate2", "cpu", inter_threads=2)
    model.translate_batch([["a", "b"]] * 8, max_batch_size=1, max_decoding_length=2, beam_size=1)
    kept.append(model)


def onnxruntime_genai(models):
    import onnxruntime_genai

    kept.append(onnxruntime_genai.Model(f"{models}/onnxruntime_genai"))


def opencv_python_headless(models):
    import cv2
    import numpy as np

    cv2.GaussianBlur(np.ones((2000, 2000, 3), np.uint8), (15, 15), 3)
    return cv2.getNumThreads()


def usearch(models):
    import numpy as np
    from usearch.index import Index

    vectors = np.random.default_rng(7).standard_normal((20000, 64)).astype("f")
    index = Index(ndim=64)
    index.add(np.arange(len(vectors)), vectors)


def hnswlib(models):
    import hnswlib
    import numpy as np

    vectors = np.random.default_rng(7).standard_normal((20000, 64)).astype("f")
    index = hnswlib.Index(space="l2", dim=64)
    index.init_index(len(vectors))
    index.add_items(vectors)
    return index.num_threads


def faiss_cpu(models):
    import faiss
    import numpy as np

    vectors = np.random.default_rng(7).standard_normal((20000, 64)).astype("f")
    index = faiss.IndexFlatL2(64)
    index.add(vectors)
    index.search(vectors[:200], 4)
    return faiss.omp_get_max_threads()


def openvino(models):
    import numpy as np
    import openvino

    model = openvino.Core().compile_model(f"{models}/model.onnx", "CPU")
    model({0: np.ones((64, 256), "f")})
    kept.append(model)
    return int(model.get_property("INFERENCE_NUM_THREADS"))


def concurrent_futures(models):
    import time
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor()
    # A thread is started only where no other is free.
    list(pool.map(time.sleep, [0.05] * 64))
    kept.append(pool)


def multiprocessing(models):
    from multiprocessing import Pool

    pool = Pool()
    pool.map(abs, range(64))
    kept.append(pool)


kept = []
if __name__ == "__main__":
    says = globals()[re.sub("[-.]", "_", sys.argv[1])](sys.argv[2])
    print(json.dumps({} if says is None else {"says": says}), flush=True)
    sys.stdin.read()
