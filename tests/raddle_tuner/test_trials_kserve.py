"""Requests of the KServe v2 protocol: what the metadata asks for, as JSON and as bytes, answered by a real session."""

import json
import sys

import numpy as np
import pytest
from support import tiny_models

from raddle_operator.local.container import Container
from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.blocks import Block, MeasurementRequest
from raddle_tuner.trials import kserve, programs
from raddle_tuner.trials.http_load import Request
from raddle_tuner.trials.inputs import InputError
from raddle_tuner.trials.kserve import Inputs
from raddle_tuner.trials.measuring import Measuring

JSON = b'{"name": "server", "version": "1", "extensions": []}'
BINARY = b'{"name": "server", "version": "1", "extensions": ["classification", "binary_tensor_data"]}'


def metadata(*found):
    inputs = [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in found]
    return json.dumps({"name": "m", "platform": "", "inputs": inputs, "outputs": []}).encode()


def test_a_request_as_json_has_the_values_in_row_major_order_and_one_for_what_is_open():
    body, headers = kserve.request(JSON, metadata(("ids", "INT64", [-1, 3]), ("attention_mask", "BOOL", [2])), Inputs())
    ids, mask = json.loads(body)["inputs"]
    assert {**ids, "data": None} == {"name": "ids", "shape": [1, 3], "datatype": "INT64", "data": None}
    assert len(ids["data"]) == 3
    assert mask == {"name": "attention_mask", "shape": [2], "datatype": "BOOL", "data": [True, True]}
    assert headers == {"Content-Type": "application/json"}


def test_a_request_as_bytes_says_how_long_its_header_and_each_tensor_are():
    found = metadata(("half", "FP16", [2]), ("words", "BYTES", [2]))
    body, headers = kserve.request(BINARY, found, Inputs(shapes={"half": (2,)}))
    length = int(headers["Inference-Header-Content-Length"])
    half, words = json.loads(body[:length])["inputs"]
    assert (half["parameters"], words["parameters"]) == ({"binary_data_size": 4}, {"binary_data_size": 16})
    assert np.frombuffer(body[length : length + 4], np.float16).shape == (2,)
    assert body[length + 4 :] == b"\x03\0\0\0the\x05\0\0\0quick"


@pytest.mark.parametrize(
    ("server", "model", "said"),
    [
        (JSON, b"no JSON", "the model's metadata is not a JSON object: b'no JSON'"),
        (JSON, b"[]", "the model's metadata is not a JSON object"),
        (JSON, b"{}", "names no inputs; give the request by --http"),
        (b"", metadata(("x", "FP32", [1])), "the server's metadata is not a JSON object"),
        (JSON, b'{"inputs": [{"name": "x"}]}', "an input without name, datatype and shape"),
        (JSON, metadata(("x", "BF16", [1])), "input x is BF16 [1], which can't be generated"),
        (JSON, metadata(("x", "FP16", [1])), "input x is FP16, which JSON can't carry"),
    ],
)
def test_what_can_not_be_asked_is_said(server, model, said):
    with pytest.raises(InputError) as error:
        kserve.request(server, model, Inputs())
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("url", "server"),
    [("http://a:1/v2/models/m", "http://a:1/v2"), ("http://a/behind/v2/models/m/versions/2", "http://a/behind/v2")],
)
def test_the_server_is_asked_beside_its_models(url, server):
    assert kserve.server_url(url) == server


# A server of aiohttp and ONNX Runtime. It answers with what the model makes of the input, and refuses all else.
SERVER = """
import json, sys
import numpy as np, onnxruntime
from aiohttp import web
model, extensions, port = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
(given,) = session.get_inputs()
async def server(request):
    return web.json_response({"name": "tiny", "version": "1", "extensions": extensions.split()})
async def metadata(request):
    shape = [dim if isinstance(dim, int) else -1 for dim in given.shape]
    return web.json_response({"name": "m", "inputs": [{"name": given.name, "datatype": "FP32", "shape": shape}]})
async def infer(request):
    body = await request.read()
    length = request.headers.get("Inference-Header-Content-Length")
    (tensor,) = json.loads(body[: int(length)] if length else body)["inputs"]
    if length:
        assert tensor["parameters"]["binary_data_size"] == len(body) - int(length)
        values = np.frombuffer(body[int(length) :], np.float32)
    else:
        values = np.array(tensor["data"], np.float32)
    (found,) = session.run(None, {tensor["name"]: values.reshape(tensor["shape"])})
    return web.json_response({"outputs": [{"data": found.ravel().tolist()}]})
app = web.Application()
app.router.add_get("/v2", server)
app.router.add_get("/v2/models/m", metadata)
app.router.add_post("/v2/models/m/infer", infer)
web.run_app(app, host="127.0.0.1", port=int(port), print=None)
"""


@pytest.mark.parametrize("extensions", ["", "binary_tensor_data"])
def test_a_server_is_asked_with_inputs_made_for_it(tmp_path, extensions):
    (tmp_path / "server.py").write_text(SERVER)
    command = (sys.executable, str(tmp_path / "server.py"), str(tiny_models.write(tmp_path)), extensions, "{port}")
    url = "http://127.0.0.1:{port}/v2/models/m"
    how = programs.Server(command=command, request=Request(url=url), kserve=Inputs())
    said = []
    given = Container(cpus=None, variables={}, mounts=(), notes=())
    request = MeasurementRequest(candidate=Candidate(), rate=50.0, seconds=0.2, seed=1, phase="test")
    with Measuring(start=lambda _: programs.server(given, how, 1, said.append), say=said.append) as measuring:
        block = measuring.measure(request)
    assert isinstance(block, Block), block
    assert (len(block.latencies_ms), block.missed, said) == (10, 0, [])
