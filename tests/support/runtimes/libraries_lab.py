"""The real libraries behind the adapters that are made with `raddle.adapters.library`, each as a small program.

A program is told the folder of `models`, and prints a line of JSON: "threads" is what the library has where the code
says nothing, "own" where the code asks for OWN of them. `python` are the interpreters of cached environments. Those of
LARGE are no part of `make test`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raddle import env
from runtimes import pythons
from support.runtimes import shim_lab

OWN = 3
# Name of the environment -> its packages.
PACKAGES = {
    # It is built from source.
    "hnswlib": ("numpy==2.4.6", "hnswlib==0.8.0"),
    "libraries": (
        "numpy==2.4.6",
        "usearch==2.26.6",
        "ctranslate2==4.8.5",
        "onnxruntime==1.32.0",
        "onnxruntime-genai==0.18.0",
    ),
}
LARGE = {
    "openvino": ("numpy==2.4.6", "openvino==2026.4.1"),
    "xllamacpp": ("xllamacpp==2026.10.11549",),
    "llama_cpp": ("llama-cpp-python==0.3.36",),
    "paddle": ("paddlepaddle==3.3.1",),
}
_TASKS = """
import json, os, sys
models, own = sys.argv[1], int(sys.argv[2])
def tasks():
    return len(os.listdir("/proc/self/task"))
"""
HNSWLIB = (
    _TASKS
    + """
import hnswlib, pickle
made = [hnswlib.Index(space="l2", dim=4), hnswlib.BFIndex("l2", 4)]
threads = [one.num_threads for one in made]
for one in made:
    one.set_num_threads(own)
copies = [pickle.loads(pickle.dumps(made[0])), hnswlib.Index(made[0])]
assert {type(one) for one in copies} == {hnswlib.Index}
print(json.dumps({"threads": threads, "own": [one.num_threads for one in [*made, *copies]]}))
"""
)
# What its compiled index is called with.
USEARCH = (
    _TASKS
    + """
import numpy, usearch.index
found = []
class Compiled:
    def __init__(self, index):
        self.index = index
    def __getattr__(self, name):
        method = getattr(self.index, name)
        def told(*args, **kwargs):
            found.append(kwargs["threads"])
            return method(*args, **kwargs)
        return told if name.endswith("_many") else method
class Index(usearch.index.Index):
    pass
index, keys, vectors = Index(ndim=4), numpy.arange(9), numpy.random.rand(9, 4).astype("f")
index._compiled = Compiled(index._compiled)
def use(**threads):
    del found[:]
    index.add(keys, vectors, **threads)
    index.search(vectors, 2, **threads)
    index.remove(keys, **threads)
    return found[:]
print(json.dumps({"threads": use(), "own": use(threads=own)}))
"""
)
# Its teams and its workers stay: each worker has a team of its own, which it is a member of.
CTRANSLATE2 = (
    _TASKS
    + """
import ctranslate2
def use(**counts):
    before = tasks()
    model = ctranslate2.Translator(models + "/ctranslate2", "cpu", inter_threads=2, **counts)
    model.translate_batch([["a", "b"]] * 8, max_batch_size=1, max_decoding_length=2, beam_size=1)
    return tasks() - before
print(json.dumps({"threads": use()} if own != 1 else {"own": use(intra_threads=2)}))
"""
)
GENAI = (
    _TASKS
    + """
import onnxruntime_genai
folder, before = models + "/onnxruntime_genai", tasks()
model = onnxruntime_genai.Model(folder)
threads = [tasks() - before]
config = onnxruntime_genai.Config(folder)
again = onnxruntime_genai.Model(config)
threads.append(tasks() - before - threads[0])
before = tasks()
options = {"model": {"decoder": {"session_options": {"intra_op_num_threads": own}}}}
config.overlay(json.dumps(options))
its_own = onnxruntime_genai.Model(config)
try:
    onnxruntime_genai.Model(models + "/none")
except RuntimeError as error:
    missing = str(error)
print(json.dumps({"threads": threads, "own": tasks() - before, "missing": missing}))
"""
)
CV2 = _TASKS + "import cv2\nfound = cv2.getNumThreads()\ncv2.setNumThreads(own)\n"
CV2 += "print(json.dumps({'threads': found, 'own': cv2.getNumThreads()}))\n"
OPENVINO = (
    _TASKS
    + """
import numpy, openvino
from openvino import opset8
rows = opset8.parameter([4, 8], numpy.float32)
model = openvino.Model([opset8.relu(rows)], [rows], "tiny")
core = openvino.Core()
def use(**config):
    found = core.compile_model(model, "CPU", config)
    found({0: numpy.ones((4, 8), "f")})
    return [int(found.get_property(name)) for name in ("INFERENCE_NUM_THREADS", "NUM_STREAMS", "ENABLE_CPU_PINNING")]
print(json.dumps({
    "threads": use(),
    "zero": use(INFERENCE_NUM_THREADS=0),
    "streams": use(NUM_STREAMS=8),
    "throughput": use(PERFORMANCE_HINT="THROUGHPUT"),
    "own": use(INFERENCE_NUM_THREADS=own),
    "function": int(openvino.compile_model(model, "CPU").get_property("INFERENCE_NUM_THREADS")),
}))
"""
)
XLLAMACPP = (
    _TASKS
    + """
import xllamacpp
params = xllamacpp.CommonParams()
threads = params.cpuparams.n_threads
params.cpuparams.n_threads = own
print(json.dumps({"threads": threads, "own": params.cpuparams.n_threads}))
"""
)
# Needs no model: what a context would be made with is known before one is loaded.
LLAMA_CPP = (
    _TASKS
    + """
import llama_cpp
def use(**counts):
    found = llama_cpp.Llama.__new__(llama_cpp.Llama)
    try:
        found.__init__(models + "/none.gguf", verbose=False, **counts)
    except ValueError:
        pass
    return [found.n_threads, found.n_threads_batch]
print(json.dumps({"threads": use(), "own": use(n_threads=own, n_threads_batch=own)}))
"""
)
PADDLE = (
    _TASKS
    + """
import paddle
config = paddle.inference.Config()
threads = config.cpu_math_library_num_threads()
config.set_cpu_math_library_num_threads(own)
copied = paddle.inference.Config(config)
print(json.dumps({
    "threads": threads, "own": [one.cpu_math_library_num_threads() for one in (config, copied)],
}))
"""
)
PROGRAMS = {
    "hnswlib": ("hnswlib", HNSWLIB),
    "usearch": ("libraries", USEARCH),
    "ctranslate2": ("libraries", CTRANSLATE2),
    "onnxruntime_genai": ("libraries", GENAI),
    "cv2": ("third-party", CV2),
    "openvino": ("openvino", OPENVINO),
    "xllamacpp": ("xllamacpp", XLLAMACPP),
    "llama_cpp": ("llama_cpp", LLAMA_CPP),
    "paddle": ("paddle-3.3.1", PADDLE),
}


def python(name: str) -> Path:
    """The interpreter that has the library. Raises UnavailableError."""
    environment = PROGRAMS[name][0]
    if environment == "third-party":
        return pythons.venv(environment, "3.11", *shim_lab.THIRD_PARTY)
    if environment in pythons.BUILDS:
        return pythons.release(environment)
    return pythons.venv(environment, "3.11", {**PACKAGES, **LARGE}[environment])


def said(
    name: str, models: Path, plan: str = "", mounted: Path | None = None, own: int = OWN, **variables: str
) -> dict[str, Any]:
    """What the library's program prints, and "stderr"; without `plan` as it is without Raddle."""
    ours: Mapping[str, str] = {**shim_lab.python_path(mounted), env.PLAN: plan} if plan and mounted else {}
    done = shim_lab.python(python(name), "-c", PROGRAMS[name][1], str(models), str(own), env={**ours, **variables})
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


def write_models(folder: Path) -> Path:
    """The folder with a model for each library that needs one."""
    _write_genai(folder / "onnxruntime_genai")
    shim_lab.python(python("ctranslate2"), "-c", _CTRANSLATE2_MODEL, str(folder / "ctranslate2"), env={})
    return folder


def _write_genai(folder: Path) -> None:
    """A decoder whose state is its last token."""
    import onnx
    from onnx import TensorProto, helper

    folder.mkdir()
    past = [f"past_key_values.0.{one}" for one in ("key", "value")]
    present = [f"present.0.{one}" for one in ("key", "value")]

    def ends(names: list[str], kind: int, shape: list[str | int]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, shape) for name in names]

    tables = [
        helper.make_tensor("embedding", TensorProto.FLOAT, [8, 4], [0.1] * 32),
        helper.make_tensor("head", TensorProto.FLOAT, [4, 8], [0.1] * 32),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
    ]
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", "head"], ["logits"]),
        helper.make_node("Unsqueeze", ["embedded", "one"], ["state"]),
        *(helper.make_node("Concat", [old, "state"], [new], axis=2) for old, new in zip(past, present, strict=True)),
    ]
    inputs = [
        *ends(["input_ids"], TensorProto.INT64, ["batch", "tokens"]),
        *ends(["attention_mask"], TensorProto.INT64, ["batch", "all"]),
        *ends(past, TensorProto.FLOAT, ["batch", 1, "past", 4]),
    ]
    outputs = [
        *ends(["logits"], TensorProto.FLOAT, ["batch", "tokens", 8]),
        *ends(present, TensorProto.FLOAT, ["batch", 1, "all", 4]),
    ]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tables)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    decoder = {
        "filename": "model.onnx",
        "head_size": 4,
        "hidden_size": 4,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        "inputs": {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
    }
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "context_length": 32, "vocab_size": 8}
    config = {"model": {**tokens, "type": "llama", "decoder": decoder}, "search": {"max_length": 16}}
    (folder / "genai_config.json").write_text(json.dumps(config))


_CTRANSLATE2_MODEL = """
import os, sys
import numpy
from ctranslate2.specs import transformer_spec
width, tokens = 16, ["<blank>", "<s>", "</s>", "<unk>", "a", "b"]
random = numpy.random.default_rng(7)
def matrix(rows, columns):
    return random.standard_normal((rows, columns)).astype("f")
def linear(one, rows, columns):
    one.weight, one.bias = matrix(rows, columns), numpy.zeros(rows, "f")
def norm(one):
    one.gamma, one.beta = numpy.ones(width, "f"), numpy.zeros(width, "f")
def attention(one, *rows):
    norm(one.layer_norm)
    for part, count in zip(one.linear, rows):
        linear(part, count * width, width)
def layer(one):
    attention(one.self_attention, 3, 1)
    norm(one.ffn.layer_norm)
    linear(one.ffn.linear_0, 2 * width, width)
    linear(one.ffn.linear_1, width, 2 * width)
spec = transformer_spec.TransformerSpec.from_config(num_layers=1, num_heads=2)
spec.encoder.embeddings[0].weight = matrix(len(tokens), width)
spec.decoder.embeddings.weight = matrix(len(tokens), width)
linear(spec.decoder.projection, len(tokens), width)
for part in (spec.encoder, spec.decoder):
    part.position_encodings.encodings = matrix(32, width)
    norm(part.layer_norm)
    layer(part.layer[0])
attention(spec.decoder.layer[0].attention, 1, 2, 1)
spec.register_source_vocabulary(tokens)
spec.register_target_vocabulary(tokens)
spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "<unk>", "<s>", "</s>"
spec.validate()
spec.optimize()
os.makedirs(sys.argv[1])
spec.save(sys.argv[1])
"""
