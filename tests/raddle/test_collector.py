"""The sessions among a program's own metrics: with the real prometheus_client, in processes of their own."""

from pathlib import Path

import pytest
from support.runtimes import shim_lab

from raddle.report import record

RUNTIME = Path(record.__file__).parents[2]
START = """
import os, sys
from raddle.process import current
from raddle.report import observe, record

class Model:
    def __init__(self, threads=2, level="runs", because=""):
        why = {"intraOp": because} if because else {}
        self.raddle = observe.created({"observe": level}, runtime="toy", version="1", plan="", effective={"intraOp": threads}, because=why,
                                       facts=current.Facts(3, None))
        observe.initialized(self.raddle, [])

    run = observe.timed(lambda self: None)

def shown():
    return [line for line in prometheus_client.generate_latest().decode().splitlines() if line.startswith("raddle_")]

"""
FIRST = "import prometheus_client\n"


def run(code, **variables):
    done = shim_lab.python(
        shim_lab.THIS_PYTHON, "-c", START + code, env={"PYTHONPATH": str(RUNTIME), **variables}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_programs_metrics_have_its_sessions_their_threads_and_run_times():
    code = """
one, other = Model(), Model(16, because="set in the code")
for _ in range(3):
    one.run()
print(*shown(), sep="\\n")
"""
    lines = run(FIRST + code).splitlines()
    assert lines[:3] == [
        'raddle_sessions{runtime="toy"} 2.0',
        'raddle_session_threads{runtime="toy",source="code"} 16.0',
        'raddle_session_threads{runtime="toy",source="plan"} 2.0',
    ]
    assert lines[3].startswith('raddle_session_run_seconds_bucket{le="0.000262144",runtime="toy"} ')
    assert 'raddle_session_run_seconds_bucket{le="17.179869184",runtime="toy"} 3.0' in lines
    assert 'raddle_session_run_seconds_bucket{le="+Inf",runtime="toy"} 3.0' in lines
    assert 'raddle_session_run_seconds_count{runtime="toy"} 3.0' in lines
    (total,) = [line for line in lines if line.startswith("raddle_session_run_seconds_sum")]
    assert 0 < float(total.split()[1]) < 1


def test_a_client_that_is_imported_later_has_them_after_the_next_look():
    code = "Model()\nimport prometheus_client\nprint(len(shown()))\nobserve._offer()\nprint(shown()[0])"
    assert run(code).splitlines() == ["0", 'raddle_sessions{runtime="toy"} 1.0']


@pytest.mark.parametrize(
    ("code", "variables"),
    [
        (FIRST + 'Model(level="sessions")\nprint(shown())', {}),
        (FIRST + "Model()\nprint(shown())", {"PROMETHEUS_MULTIPROC_DIR": "/tmp"}),
    ],
    ids=["observe: Sessions", "multiprocess mode"],
)
def test_a_programs_metrics_are_left_alone(code, variables):
    assert run(code, **variables) == "[]\n"


def test_prometheus_client_is_never_imported_for_it():
    assert run('Model()\nprint("prometheus_client" in sys.modules)') == "False\n"


def test_a_forked_child_has_them_once_and_tells_of_its_own_sessions():
    code = """
Model()
child = os.fork()
if not child:
    before = shown()
    Model(3)
    print(before, shown()[:2], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(shown()[0])
"""
    assert run(FIRST + code).splitlines() == [
        '[] [\'raddle_sessions{runtime="toy"} 1.0\', \'raddle_session_threads{runtime="toy",source="plan"} 3.0\']',
        'raddle_sessions{runtime="toy"} 1.0',
    ]


def test_a_program_that_has_a_metric_of_that_name_keeps_it():
    code = """
own = prometheus_client.Gauge("raddle_sessions", "Mine")
own.set(7)
Model()
observe._offer()
print(shown())
"""
    assert run(FIRST + code) == "['raddle_sessions 7.0']\n"


def test_a_broken_record_leaves_the_other_metrics():
    code = """
Model()
record.sessions.append(None)
print(shown(), "python_info" in prometheus_client.generate_latest().decode())
"""
    assert run(FIRST + code) == "[] True\n"
