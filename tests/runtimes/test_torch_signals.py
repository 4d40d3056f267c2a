"""A signal handler of the application's may raise at any moment of Raddle's work in torch: torch's counts stand after it.

It is brought in at each line of Raddle's own code in turn, by a trace function, which is called as a handler is. Each
time is in a process of its own, forked from one that has imported torch.
"""

import json
import os

import pytest
from support.runtimes import shim_lab, torch_lab

CPUS = sorted(os.sched_getaffinity(0))[:2]
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs: one leaves nothing to cut"),
]

AT_EACH_LINE = """
import json, os, sys
import torch
import raddle
from raddle import log
from raddle.report import record
from raddle.adapters import torch as adapter

FOLDER, PLAN, TRIED, STEP = os.path.dirname(raddle.__file__), sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
KINDS = [TimeoutError, type("SoftTimeLimit", (Exception,), {}), RuntimeError, ValueError]
module = torch.nn.Linear(2, 2)
given = torch.ones(2)

def traced(call, at):
    # What becomes of the error that a handler raises at this step; without one all steps, by file and line.
    steps, kind = [], KINDS[(at or 0) % len(KINDS)]
    def trace(frame, event, _):
        file = frame.f_code.co_filename
        if not file.startswith(FOLDER):
            return None
        if event == "line":
            if len(steps) == at:
                sys.settrace(None)
                raise kind("the limit")
            steps.append([file[len(FOLDER):], frame.f_lineno])
        return trace
    sys.settrace(trace)
    try:
        call()
    except kind as error:
        return "raised" if str(error) == "the limit" else repr(error)
    finally:
        sys.settrace(None)
    return steps if at is None else "lost"

def in_child(call):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = call()
        except BaseException as error:
            answer = repr(error)
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        answer = json.loads(pipe.read() or '"died"')
    os.waitpid(child, 0)
    return answer

def install():
    adapter.prepare(PLAN)
    adapter.install(torch, PLAN)

def run():
    torch._C._parallel_info()
    module(given)

def tried(call, expected, done):
    # Which lines there are, and what was not as it should be where the handler came at one that is not among `done`.
    def case(at):
        # All of the process: the CPUs of its threads count together, and torch may have started one.
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), sorted(os.sched_getaffinity(0))[:1])
        came = traced(call, at)
        call()
        return [came, [torch.get_num_threads(), torch.get_num_interop_threads()], log.complaints]
    steps, wrong = in_child(lambda: case(None))[0], []
    # Each line once, no matter who calls it.
    lines = [[at, line] for at, line in enumerate(steps) if steps.index(line) == at]
    for at, line in lines[::STEP]:
        if line in done:
            continue
        answer = in_child(lambda: case(at))
        if answer != ["raised", expected, []]:
            wrong.append([line, answer])
    return [[line for _, line in lines], wrong]

def main():
    found = [tried(install, [1, 1], TRIED[0])]
    install()
    # The child has one of the two CPUs.
    print(json.dumps([*found, tried(run, [1, 2], TRIED[1])]))

main()
"""


# Lines of Raddle's that were tried in another torch already, while it is installed and afterwards: each has a child.
tried = [], []


# Every line, or in `make test` one of eight.
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("having", [torch_lab.trixie, torch_lab.installed])
def test_what_a_signal_handler_raises_reaches_the_application_and_torch_has_the_planned_counts_after_it(
    having, step, tmp_path
):
    variables = {**shim_lab.python_path(shim_lab.mount(tmp_path)), "RADDLE_LOG": "0"}
    command = [having().python, "-c", AT_EACH_LINE, "v=1;omp=2;torch_inter_op=2", json.dumps(tried), str(step)]
    done = shim_lab.python(*command, env=variables, cpus=CPUS, check=False)
    assert done.returncode == 0, done.stderr
    (installing, not_installed), (running, not_run) = json.loads(done.stdout.splitlines()[-1])
    assert (not_installed, not_run) == ([], [])
    assert (len(installing) > 100, len(running) > 50) == (True, True)
    tried[0].extend(installing[::step])
    tried[1].extend(running[::step])
