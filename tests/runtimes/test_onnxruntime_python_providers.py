"""Provider options: what reaches the native session, in every release; and two builds with providers of their own."""

import pytest
from support.runtimes import ort_lab
from support.runtimes.ort_lab import ROW, version

from raddle import env
from raddle.adapters.onnxruntime.providers import planned_options

pytestmark = ort_lab.MARKS

CUDA, CPU, OPENVINO = "CUDAExecutionProvider", "CPUExecutionProvider", "OpenVINOExecutionProvider"
# None of these is ONNX Runtime's default.
OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_use_max_workspace": "0",
    "cudnn_conv1d_pad_to_nc1d": "1",
    "gpu_mem_limit": "1073741824",
}
PLAN = "intra_op=2;min_intra_op=2;spinning=bounded;" + ";".join(f"cuda.{key}={value}" for key, value in OPTIONS.items())
OWN = {"gpu_mem_limit": "2147483648", "device_id": "0"}
# Every way in which an application can name providers -> what it says of CUDA's options itself.
WAYS = {
    "names": ({"providers": [CUDA, CPU]}, {}),
    "pairs": ({"providers": [[CUDA, OWN], CPU]}, OWN),
    "two lists": ({"providers": [CUDA, CPU], "provider_options": [OWN, {}]}, OWN),
    "afterwards": ({"set_providers": [[CUDA, OWN], CPU]}, OWN),
}


def sessions():
    return [{**session, "idle_s": 0} for session, _ in WAYS.values()]


def of_cuda(found):
    """CUDA's options of each call that had some, in order."""
    return [options[names.index(CUDA)] for names, options in found["reached"] if CUDA in names]


# An onnxruntime for the CPU passes the list on as it is, and takes what it has.
@pytest.mark.parametrize("release", [*ort_lab.RELEASES, "ort-gpu-1.31.1"])
def test_the_plan_s_options_reach_the_native_session_beside_the_application_s(release, lab, proves):
    name = "1.31.1" if "gpu" in release else version(release)
    proves(ROW, name, "provider options")
    found = lab.probes(
        release,
        {
            "respect": (PLAN, [*sessions(), {"providers": [CPU]}]),
            "override": (PLAN + ";existing_values=override", sessions()),
        },
        first="import warnings; warnings.simplefilter('ignore')",
    )
    assert of_cuda(found["respect"]) == [{**OPTIONS, **own} for _, own in WAYS.values()]
    assert of_cuda(found["override"]) == [{**own, **OPTIONS} for _, own in WAYS.values()]
    # Not one option for a provider that the application doesn't ask for.
    assert found["respect"]["reached"][-1] == [[CPU], [{}]]
    # Beside a GPU the CPU pool does not spin. Where there is none, the session is not crippled: the count stays.
    session, record = found["respect"]["sessions"][0], found["respect"]["records"][0]
    assert session["pool"] == 1
    assert record["effective"]["providerOptions"] == {CUDA: OPTIONS}
    assert (record["effective"]["spinning"], record["effective"]["intraOp"]) == ("never", 2)
    assert record["because"]["spinning"] == "planned bounded, turned off: " + CUDA
    assert session["providers"] == record["providers"]
    missing = "requested, but not in use: " + CUDA
    assert record["because"].get("providers") == (None if CUDA in record["providers"] else missing)


def test_a_session_on_the_cpu_spins_as_planned_beside_one_that_asks_for_a_gpu(lab):
    found = lab.probe("ort-gpu-1.31.1", PLAN, {"providers": [CUDA, CPU]}, {"providers": [CPU]})
    assert [record["effective"]["spinning"] for record in found["records"]] == ["never", "bounded"]


def test_a_provider_with_threads_of_its_own_gets_the_planned_count(lab, proves):
    proves(ROW, "1.24.1", "provider options")
    session = {"model": str(lab.wide(4096)), "providers": [OPENVINO]}
    one, two = (
        lab.probe("ort-openvino-1.24.1", f"intra_op=1;openvino.num_of_threads={count}", session) for count in (1, 2)
    )
    assert [found["sessions"][0]["providers"] for found in (one, two)] == [[OPENVINO, CPU]] * 2
    assert one["reached"] == [[[OPENVINO], [{"num_of_threads": "1"}]]]
    assert two["sessions"][0]["threads"] == one["sessions"][0]["threads"] + 1


def test_the_openvino_provider_gets_the_session_s_count_where_neither_plan_nor_code_has_one_for_it(lab):
    model = str(lab.wide(4096))
    asked = [{"model": model, "providers": [each]} for each in (OPENVINO, [OPENVINO, {"num_of_threads": "2"}], CPU)]
    found = lab.probe("ort-openvino-1.24.1", "intra_op=1", *asked)
    assert found["reached"] == [
        [[OPENVINO], [{"num_of_threads": "1"}]],
        [[OPENVINO], [{"num_of_threads": "2"}]],
        [[CPU], [{}]],
    ]
    (record, *_) = found["records"]
    assert record["effective"]["providerOptions"] == {OPENVINO: {"num_of_threads": "1"}}


# As ONNX Runtime does with CUDA graphs and a model that is not all on the GPU: the model is loaded, then it fails.
REFUSES = """
from onnxruntime.capi import onnxruntime_pybind11_state as extension
native = next(cls for cls in extension.InferenceSession.__mro__ if cls.__module__ == extension.__name__
              and not hasattr(cls.__mro__[1], "initialize_session"))
initialize = native.initialize_session
def refusing(self, names, options, disabled):
    initialize(self, names, [{}] * len(names), disabled)
    if any("enable_cuda_graph" in one for one in options):
        raise RuntimeError("This session cannot use the graph capture feature as requested by the user")
native.initialize_session = refusing
import warnings
warnings.simplefilter("ignore")
"""


@pytest.mark.parametrize("release", ort_lab.RELEASES)
def test_an_option_with_which_the_model_can_not_be_loaded_is_left_out(release, lab):
    plan = "intra_op=2;min_intra_op=2;inter_op=1;spinning=never;cuda.enable_cuda_graph=1"
    found = lab.probe(release, plan, {"providers": [CUDA, CPU]}, {"set_providers": [[CUDA, OWN], CPU]}, first=REFUSES)
    assert [session["pool"] for session in found["sessions"]] == [1, 1]
    assert of_cuda(found) == [{"enable_cuda_graph": "1"}, {}, {"enable_cuda_graph": "1", **OWN}, OWN]
    # A session that could not be created is none.
    assert [record["effective"].get("providerOptions") for record in found["records"]] == [
        {CUDA: {}},
        None,
        {CUDA: OWN},
    ]
    why = "no session could be created with them: enable_cuda_graph"
    assert found["records"][0]["because"]["providerOptions"] == why
    assert found["stderr"].count("This session cannot use the graph capture feature") == 1


def test_the_options_of_a_gpu_s_session_are_read_back(lab, proves):
    found = lab.probe("ort-gpu-1.31.1", PLAN, {"providers": [CUDA, CPU]})
    session = found["sessions"][0]
    if CUDA not in session["providers"]:
        pytest.skip("no GPU that onnxruntime-gpu 1.31.1 can use")
    proves(ROW, "1.31.1", "provider options")
    read = session["provider_options"][CUDA]
    assert {key: read[key] for key in OPTIONS} == OPTIONS


def test_every_option_of_the_plan_belongs_to_one_provider():
    fields = {"cuda.use_tf32": 0, "xnnpack.intra_op_num_threads": 3, "intra": 2, "session.force_spinning_stop": 1}
    expected = {CUDA: {"use_tf32": "0"}, "XnnpackExecutionProvider": {"intra_op_num_threads": "3"}}
    assert planned_options(fields) == expected
    assert planned_options(env.decode("v=1;intra_op=2")) == {}
