"""Sessions that can't be created, forks, and what an application does after its import: nothing is done twice or lost."""

import json

import pytest
from support.runtimes import ort_lab, shim_lab

from raddle import env
from runtimes import pythons

pytestmark = ort_lab.MARKS

OLD, NEWEST = "ort-1.16.3", "ort-1.31.1"
PLAN = "v=1;intra_op=2;min_intra_op=2;inter_op=1;execution_mode=sequential;spinning={};spin_duration_us=200"


def program(lab, release, code, plan, **variables):
    """The last line that the code prints, as JSON, and its stderr."""
    settings = {**shim_lab.python_path(lab.mounted), env.PLAN: plan, **variables}
    done = shim_lab.python(pythons.release(release), "-c", code, str(lab.model), env=settings, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


MISTAKES = """
import json, sys, onnxruntime as ort
from onnxruntime.capi import _pybind_state as native
extension = native.InferenceSession.__mro__[1]
construct, calls = extension.__init__, []
def counted(self, *args, **kwargs):
    calls.append(args[1])
    return construct(self, *args, **kwargs)
extension.__init__ = counted
options, said = ort.SessionOptions(), []
affinity = ort.SessionOptions()
affinity.intra_op_num_threads = 2
affinity.add_session_config_entry("session.intra_op_thread_affinities", "1;2;3")
affinity.log_severity_level = 4
for model, given in (("/nowhere.onnx", options), (b"not a model", options), (sys.argv[1], affinity)):
    del calls[:]
    try:
        # Without onnxruntime's own second attempt.
        native.InferenceSession(given, model, isinstance(model, str), False)
    except Exception as error:
        at, folders = error.__traceback__, []
        while at is not None:
            folders.append(at.tb_frame.f_globals["__name__"].startswith("raddle."))
            at = at.tb_next
        said.append([len(calls), sum(folders), error.__context__ is None])
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
made = session._sess.raddle
print(json.dumps([said, made["effective"]["spinning"], made["because"]]))
"""


@pytest.mark.parametrize(("release", "spin"), [(OLD, "never"), (NEWEST, "bounded")])
def test_the_application_s_own_mistake_is_made_once_and_the_next_session_is_planned(lab, release, spin):
    (said, spinning, because), stderr = program(lab, release, MISTAKES, PLAN.format(spin))
    # Constructions, frames of Raddle's in the traceback, and that nothing was being handled.
    assert said == [[1, 0, True]] * 3
    assert (spinning, because) == (spin, {})
    assert "already exists" not in stderr
    assert stderr.count("\n") == 1


REFUSED = """
import json, sys, onnxruntime as ort
from onnxruntime.capi import _pybind_state as native
extension = native.InferenceSession.__mro__[1]
construct = extension.__init__
def refusing(self, options, *args):
    # As ONNX Runtime refuses a pool that its affinity does not fit.
    if options.intra_op_num_threads == 2:
        broken = native.SessionOptions()
        broken.intra_op_num_threads = 2
        broken.add_session_config_entry("session.intra_op_thread_affinities", "1;2;3")
        options = broken
    return construct(self, options, *args)
refusing.__globals__["__name__"] = "onnxruntime.refusing"
extension.__init__ = refusing
options, said = ort.SessionOptions(), []
for count in (0, 0):
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    said.append([options.intra_op_num_threads, hasattr(session._sess, "raddle")])
extension.__init__ = construct
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
made = session._sess.raddle
print(json.dumps([said, made["effective"]["spinning"], made["because"]]))
"""


@pytest.mark.parametrize(("release", "spin"), [(OLD, "never"), (NEWEST, "bounded")])
def test_a_session_that_refuses_the_plan_s_values_is_made_without_them_and_the_next_one_is_planned(lab, release, spin):
    (said, spinning, because), stderr = program(lab, release, REFUSED, PLAN.format(spin))
    assert said == [[0, False]] * 2
    assert (spinning, because) == (spin, {})
    assert stderr.count("raddle: onnxruntime session is created without the plan's values") == 1


FORKED = """
import json, os, subprocess, sys, numpy, onnxruntime as ort
options = ort.SessionOptions()
def create():
    return ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session = create()
for _ in range(3):
    subprocess.run(["true"], preexec_fn=os.setsid, check=True)
read, write = os.pipe()
if not os.fork():
    made = create()._sess.raddle
    os.write(write, json.dumps([made["effective"]["spinning"], made["because"]]).encode())
    os._exit(0)
os.wait()
print(os.read(read, 4096).decode())
"""


@pytest.mark.parametrize(("release", "spin"), [(OLD, "never"), (NEWEST, "bounded")])
def test_a_fork_is_told_of_at_the_child_s_first_session_and_its_entries_are_still_the_plan_s(lab, release, spin):
    found, stderr = program(lab, release, FORKED, PLAN.format(spin))
    assert found == [spin, {}]
    assert stderr.count("was forked after 1 onnxruntime session(s)") == 1


RUN_IN_A_CHILD = """
import json, os, sys, numpy, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
given = {"input": numpy.zeros((64, 256), "float32")}
native = type(session._sess)
# A pool that has lost its threads may keep the run waiting for ever.
native.run = lambda *args: []
if not os.fork():
    for _ in range(2):
        session.run(None, given)
    os._exit(0)
os.wait()
print("0")
"""


def test_a_fork_is_told_of_at_the_child_s_first_run(lab):
    _, stderr = program(lab, NEWEST, RUN_IN_A_CHILD, PLAN.format("never"))
    assert stderr.count("this process was forked after 1 onnxruntime session(s) had been created") == 1


LATER = """
import json, os, sys, onnxruntime as ort
def create(intra=0, inter=0):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = intra, inter
    made = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])._sess.raddle
    return [made["effective"]["intraOp"], made["effective"]["spinning"], made["because"].get("intraOp")]
found = [create()]
# The last one is what is planned.
for count in ("3", "1", "2"):
    os.environ["ORT_INTRA_OP_NUM_THREADS"] = count
    found.append(create())
print(json.dumps(found))
"""


@pytest.mark.parametrize("release", [OLD, NEWEST])
def test_a_count_that_the_code_puts_into_the_environment_after_the_import_is_read_at_each_session(lab, release):
    found, _ = program(lab, release, LATER, PLAN.format("never"))
    mine = "set in the environment"
    assert found == [[2, "never", None], [3, "never", mine], [1, "never", mine], [2, "never", mine]]


@pytest.mark.parametrize("variables", [{}, {env.ORT_INTRA: "1"}, {env.COMPLETED: f"{env.ORT_INTRA}=1"}])
def test_a_count_that_the_code_sets_is_its_own_also_where_it_is_what_raddle_sets_without_a_shim(lab, variables):
    code = LATER.replace('("3", "1", "2")', '("1",)')
    plan = "v=1;intra_op=2;min_intra_op=2;intra_op_without_shim=1;inter_op=1;spinning=never"
    found, _ = program(lab, NEWEST, code, plan, **variables)
    assert found[1] == [1, "never", "set in the environment"]


COPIED = "import json, os, sys\n" + LATER.partition("found =")[0].partition("\n")[2]


@pytest.mark.parametrize(
    ("variables", "plan", "counts", "intra", "because"),
    [
        # A count in the code is the code's, also where it is a copy of a variable.
        ({env.OMP: "4"}, "intra_op=4;omp=4", (4, 4), 4, "set in the code"),
        ({env.COMPLETED: f"{env.OMP}=4"}, "intra_op=4;omp=4", (4, 4), 4, "set in the code"),
        # What the door has completed is Raddle's; what stands in os.environ is not.
        ({env.COMPLETED: f"{env.ORT_INTRA}=1"}, "intra_op=2;min_intra_op=2;intra_op_without_shim=1", (0, 0), 2, None),
        (
            {env.ORT_INTRA: "1"},
            "intra_op=2;min_intra_op=2;intra_op_without_shim=1",
            (0, 0),
            1,
            "set in the environment",
        ),
        (
            {env.ORT_INTRA: "2"},
            "intra_op=2;min_intra_op=2;intra_op_without_shim=1",
            (0, 0),
            2,
            "set in the environment",
        ),
    ],
)
def test_a_count_that_the_door_has_completed_is_raddle_s_and_no_other_is(lab, variables, plan, counts, intra, because):
    code = COPIED.replace(
        "import json", f"import json, os\nos.sched_setaffinity(0, [{ort_lab.CPUS[0]}])\nimport json", 1
    )
    code = code.replace("import json, os, sys\n", "import json, os, sys, onnxruntime as ort\n", 1)
    found, _ = program(
        lab, NEWEST, f"{code}print(json.dumps(create{counts}))", f"v=1;inter_op=1;spinning=never;{plan}", **variables
    )
    assert (found[0], found[2]) == (intra, because)


@pytest.mark.parametrize(("variables", "counts", "intra"), [({}, (8, 0), 8), ({env.ORT_INTRA: "8"}, (0, 0), 8)])
def test_bounded_spinning_is_decided_by_the_pool_that_there_is(lab, variables, counts, intra):
    code = "import json, os, sys, onnxruntime as ort\n" + COPIED.partition("\n")[2]
    code = f"import os\nos.sched_setaffinity(0, {ort_lab.CPUS[:2]})\n{code}print(json.dumps(create{counts}))"
    found, _ = program(lab, NEWEST, code, PLAN.format("bounded"), **variables)
    assert found[:2] == [intra, "never"]


def test_an_application_that_removes_the_plan_is_left_alone_in_silence(lab):
    code = f"import os\ndel os.environ[{env.PLAN!r}]\nimport onnxruntime\nprint('0')"
    assert program(lab, NEWEST, code, PLAN.format("never")) == (0, "")
