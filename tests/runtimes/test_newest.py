"""The newest ONNX Runtime and PyTorch that can be fetched are configured like the pinned ones."""

import json
import os

import pytest
from support.runtimes import native_caller, native_lab, newest, node_lab, shim_lab

from raddle import env

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.matrix,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a pool of one has no threads to count"),
    # A release of today is fetched first.
    pytest.mark.timeout(900),
]

ALLOW = "session.intra_op.allow_spinning"
PLAN = "intra_op=2;inter_op=1;spinning=never;execution_mode=sequential;affinity=none;existing_values="
# What a shim's line ends with; before it, it may say that the release is newer than tested.
SAID = ": intra_op=2, inter_op=1, spinning off"
FAILING = """
import json, onnxruntime
try:
    onnxruntime.InferenceSession("/no/such.onnx", providers=["CPUExecutionProvider"])
except Exception as error:
    print(json.dumps([type(error).__module__, type(error).__name__, str(error)]))
"""


TORCH = """
import json, torch
found = [torch.get_num_threads(), torch.get_num_interop_threads()]
(torch.ones(256, 256) @ torch.ones(256, 256)).sum().item()
torch.set_num_threads(3)
try:
    torch.set_num_threads(0)
except Exception as error:
    print(json.dumps([*found, torch.get_num_threads(), type(error).__name__, str(error)]))
"""


@pytest.fixture(scope="module")
def of():
    """of(registry): the newest version there, also in the test's output."""

    def ask(registry):
        found = newest.version(registry)
        print(f"the newest of {registry}: {found}")
        return found

    return ask


@pytest.mark.parametrize(("existing", "pools", "spins"), [("respect", [1, 1, 3], "1"), ("override", [1, 1, 1], "0")])
def test_pypi_s_newest_has_the_plan_in_python(of, mounted, model, existing, pools, spins):
    variables = {**shim_lab.python_path(mounted), env.PLAN: f"v=1;{PLAN}{existing}"}
    sessions = [None, {"intra": 0}, {"intra": 4, "entries": {ALLOW: "1"}}]
    seen = shim_lab.probe(newest.wheel(of("pypi")), model, sessions, env=variables)
    assert [session["pool"] for session in seen["sessions"]] == pools
    assert [record["effective"]["intraOp"] - 1 for record in seen["records"]] == pools
    assert [session["effective"]["entries"].get(ALLOW) for session in seen["sessions"]] == ["0", "0", spins]
    # The application's objects are what they were.
    assert [session["after"]["intra"] for session in seen["sessions"][1:]] == [0, 4]
    assert SAID in seen["stderr"]


def test_pypi_s_newest_refuses_a_model_in_python_in_the_same_words(of, mounted):
    python = newest.wheel(of("pypi"))
    ours = {**shim_lab.python_path(mounted), env.PLAN: f"v=1;{PLAN}respect"}
    said = [json.loads(shim_lab.python(python, "-c", FAILING, env=given).stdout) for given in ({}, ours)]
    assert said[0] == said[1]
    assert said[0][1] == "NoSuchFile"


@pytest.mark.parametrize("registry", ["pypi", "maven"])
@pytest.mark.parametrize(("existing", "workers"), [("respect", [1, 1, 2]), ("override", [1, 1, 1])])
def test_the_newest_library_has_the_plan_in_c_and_java(of, registry, existing, workers):
    found = of(registry)
    program = newest.native_program(found) if registry == "pypi" else native_lab.program("java", found)
    given = native_caller.under(PLAN + existing)
    with native_caller.Caller(program, given, cpus=sorted(os.sched_getaffinity(0))[:2]) as caller:
        caller.do("env")
        made = []
        for name, options in (("default", None), ("own", ""), ("three", "intra_op=3")):
            before = len(caller.pool())
            caller.session(options, name=name)
            made.append(len(caller.pool()) - before)
        assert made == workers, caller.stderr
        assert caller.sleeps(caller.pool(), "own")
        assert any(SAID in line for line in caller.lines)
        assert caller.end() == 0


@pytest.mark.parametrize(("existing", "threads"), [("respect", [1, 1, 2, None]), ("override", [1, 1, 1, None])])
def test_npm_s_newest_has_the_plan_in_node(of, existing, threads):
    application = node_lab.application(of("npm"))
    # The binding refuses -1.
    sessions = ({}, {"intraOpNumThreads": 0}, {"intraOpNumThreads": 3}, {"intraOpNumThreads": -1})
    seen = node_lab.run(application / "app.cjs", *sessions, text=node_lab.plan(existing_values=existing))
    assert seen.threads == threads
    assert any(SAID in line for line in seen.lines)
    assert seen.sessions[3] == node_lab.run(application / "app.cjs", sessions[3]).sessions[0]


def test_debian_s_newest_torch_has_the_plan(of, mounted):
    python = newest.torch(of("debian"))
    _, _, _, *refused = json.loads(shim_lab.python(python, "-c", TORCH, env={}).stdout)
    for existing, left in (("respect", 3), ("override", 2)):
        ours = {**shim_lab.python_path(mounted), env.PLAN: f"v=1;omp=2;torch_inter_op=2;existing_values={existing}"}
        assert json.loads(shim_lab.python(python, "-c", TORCH, env=ours).stdout) == [2, 2, left, *refused], existing
