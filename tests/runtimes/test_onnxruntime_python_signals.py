"""A signal handler of the application's may come at any moment of creating a session: it raises, or makes a session.

It is brought in at each line of Raddle's own code in turn, by a trace function, which is called as a handler is.
"""

import json

import pytest
from support.runtimes import ort_lab, shim_lab

from raddle import env
from runtimes import pythons

pytestmark = ort_lab.MARKS

OLD, NEWEST = "ort-1.16.3", "ort-1.31.1"
PLAN = "v=1;intra_op=2;min_intra_op=2;inter_op=1;execution_mode=sequential;graph_optimization_level=basic;spinning={};spin_duration_us=200"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Of the smallest kind: a session is made for each line, or three."""
    return str(shim_lab.write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.onnx"))


AT_EACH_LINE = (
    shim_lab.AT_LINE
    + """
import json, os, sys
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as native
import raddle
from raddle import log
from raddle.report import record

FOLDER = os.path.dirname(raddle.__file__)
with open(sys.argv[1], "rb") as file:
    MODEL = file.read()

def options():
    made = ort.SessionOptions()
    made.log_severity_level = 3
    return made

def values(made):
    return [made.intra_op_num_threads, made.inter_op_num_threads, str(made.graph_optimization_level)]

def create(made):
    # Without onnxruntime's own second attempt after a RuntimeError or ValueError.
    session = native.InferenceSession(made, MODEL, False, False)
    session.initialize_session(["CPUExecutionProvider"], [{}], set())
    return session

def planned(session):
    made = session.raddle
    return [made["effective"][name] for name in ("intraOp", "spinning")] + [made["because"].get("intraOp")]

def create_with(handler, number, made):
    left = at_line(number, FOLDER, handler)
    try:
        return create(made), left[0] <= 0
    finally:
        sys.settrace(None)
"""
)

RAISING = """
EXPECTED = planned(create(options()))
lost, edited, unplanned, seen = [], [], [], set()
KINDS = [TimeoutError, type("SoftTimeLimit", (Exception,), {}), RuntimeError, ValueError]
used, number, going = options(), 0, True
while going:
    number += 1
    kind = KINDS[number % len(KINDS)]
    made = used if number % 2 else options()
    before = values(made)
    def handler():
        raise kind("the limit")
    try:
        _, came = create_with(handler, number, made)
    except kind as error:
        assert str(error) == "the limit"
        at, first = error.__traceback__, []
        while at is not None:
            first.append(at.tb_frame.f_code.co_filename.startswith(FOLDER))
            at = at.tb_next
        seen.add(sum(first))
    else:
        going = came
        if came:
            lost.append([number, kind.__name__])
    if values(made) != before:
        edited.append(number)
    if planned(create(made)) != EXPECTED:
        unplanned.append(number)
print(json.dumps([number, lost, edited, unplanned, log.complaints, sorted(seen)]))
"""


@pytest.mark.parametrize(("release", "spin"), [(OLD, "never"), (NEWEST, "bounded")])
def test_what_a_signal_handler_raises_reaches_the_application_wherever_it_comes(lab, model, release, spin):
    settings = {**shim_lab.python_path(lab.mounted), env.PLAN: PLAN.format(spin)}
    done = shim_lab.python(pythons.release(release), "-c", AT_EACH_LINE + RAISING, model, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    lines, lost, edited, unplanned, complaints, frames = json.loads(done.stdout.splitlines()[-1])
    assert lines > 200
    assert (lost, edited, unplanned, complaints) == ([], [], [], [])
    # Of Raddle's frames the application sees none, or the very last in which it came.
    assert frames == [0, 1]
    assert done.stderr.count("\n") == 1


RELOADING = """
own = options()
own.intra_op_num_threads = 3
EXPECTED = planned(create(options()))
wrong, used, number, going = [], options(), 0, True
while going:
    number += 1
    made = used if number % 2 else options()
    before, nested = values(made), []
    def handler():
        nested.append([planned(create(made)), planned(create(own))[0]])
    session, going = create_with(handler, number, made)
    if going and nested != [[EXPECTED, 3]]:
        wrong.append([number, nested])
    if planned(session) != EXPECTED or values(made) != before or values(own)[0] != 3:
        wrong.append([number, planned(session), values(made)])
print(json.dumps([number, wrong, log.complaints]))
"""


@pytest.mark.parametrize(("release", "spin"), [(OLD, "never"), (NEWEST, "bounded")])
def test_a_signal_handler_can_make_a_session_wherever_it_comes(lab, model, release, spin):
    settings = {**shim_lab.python_path(lab.mounted), env.PLAN: PLAN.format(spin)}
    done = shim_lab.python(pythons.release(release), "-c", AT_EACH_LINE + RELOADING, model, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    lines, wrong, complaints = json.loads(done.stdout.splitlines()[-1])
    assert lines > 200
    assert (wrong, complaints) == ([], [])
    # Where it comes between the last look at an entry and its being written, ONNX Runtime says that it is there: in
    # three lines, every other one of which is tried with a new object.
    assert done.stderr.count("already exists") <= 2


DROPPING = """
ran, made = [], options()
session = create(made)
sys.setprofile(lambda frame, event, _: event == "call" and ran.append(frame.f_code.co_name))
del session, made
sys.setprofile(None)
print(json.dumps(ran))
"""


def test_no_python_code_runs_where_a_session_is_dropped_since_what_a_handler_raises_there_is_lost(lab, model):
    settings = {**shim_lab.python_path(lab.mounted), env.PLAN: PLAN.format("bounded")}
    done = shim_lab.python(pythons.release(NEWEST), "-c", AT_EACH_LINE + DROPPING, model, env=settings)
    assert json.loads(done.stdout) == []
