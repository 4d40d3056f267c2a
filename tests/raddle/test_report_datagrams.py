"""What a process tells the node's agent: in real datagrams, and never at the application's cost."""

import json
import platform
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtimes import shim_lab

from raddle import env
from raddle.report import datagrams, groups, observe, record
from raddle_operator.agent import datagrams as received

RUNTIME = Path(record.__file__).parents[2]
START = """
import os, sys, time
from raddle.process import current
from raddle.report import datagrams, observe, record

def session(threads=2, level="sessions", because="", **more):
    why = {"intraOp": because} if because else {}
    made = observe.created({"observe": level}, runtime="toy", version="1", plan="", effective={"intraOp": threads}, because=why,
                            facts=current.Facts(3, None), **more)
    observe.initialized(made, [])
    return made

"""


@pytest.fixture
def agent():
    """An agent's socket; what does not come within its time raises."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(10)
        yield made


def run(code, where, python=shim_lab.THIS_PYTHON, **variables):
    where = where if isinstance(where, str) else f"127.0.0.1:{where.getsockname()[1]}/serve"
    environ = {"PYTHONPATH": str(RUNTIME), env.AGENT: where, **variables}
    done = shim_lab.python(python, "-c", START + code, env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def heard(agent):
    """All that has come so far: on this machine a datagram is there before the sender goes on."""
    found = []
    agent.setblocking(False)
    while True:
        try:
            data = agent.recv(65536)
        except BlockingIOError:
            return found
        received.parse(data)
        found.append(json.loads(data))


def test_a_session_is_told_of_as_soon_as_it_is_made_and_the_end_at_the_end(agent):
    pid = int(run("session(); print(os.getpid())", agent))
    first, last = heard(agent)
    assert first == {
        "v": 1,
        "container": "serve",
        "pid": pid,
        "threads": first["threads"],
        "againS": 0,
        "sessions": [{"runtime": "toy", "source": "plan", "alike": 1, "threads": 2}],
    }
    assert last == {"v": 1, "container": "serve", "pid": pid, "ended": True, "sessions": []}


def test_a_process_without_sessions_says_nothing(agent):
    run("record.changed()", agent)
    assert heard(agent) == []


def test_many_sessions_are_told_of_in_few_datagrams(agent):
    run("[session() for _ in range(100)]", agent)
    told = heard(agent)
    assert [one["sessions"][0]["alike"] for one in told[:-1]] == list(range(1, datagrams.MAX_BURST + 1))


def test_a_forked_child_tells_of_its_own_sessions_as_itself(agent):
    code = """
session(2)
child = os.fork()
if not child:
    session(3)
    sys.exit()
os.waitpid(child, 0)
print(child)
"""
    child = int(run(code, agent))
    told = heard(agent)
    assert [(one["pid"] == child, [each["threads"] for each in one["sessions"]]) for one in told] == [
        (False, [2]),
        (True, [3]),
        (True, []),
        (False, []),
    ]


def test_a_child_that_makes_no_session_says_nothing_even_at_its_end(agent):
    run("session()\nchild = os.fork()\nif not child: sys.exit()\nos.waitpid(child, 0)", agent)
    assert len(heard(agent)) == 2


def test_another_socket_module_is_not_asked(agent):
    """As that of gevent and eventlet, whose sockets switch to another greenlet."""
    run("import socket\nsocket.socket = socket.getaddrinfo = None\nsocket.setdefaulttimeout(1)\nsession()", agent)
    assert len(heard(agent)) == 2


SECCOMP = """
import ctypes, struct
NUMBERS = {"x86_64": 41, "aarch64": 198}
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, NUMBERS[os.uname().machine]), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *one) for one in rules)
kept = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(kept)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program) == 0
"""
CLOSED = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(7)[1]))\n"
AUDITED = """
def refuse(event, arguments):
    if event.startswith("socket."):
        raise PermissionError(event)
sys.addaudithook(refuse)
"""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(
            SECCOMP, marks=pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="other numbers")
        ),
        CLOSED,
        AUDITED,
    ],
    ids=["seccomp", "no file is left", "audit hook"],
)
def test_where_sockets_are_denied_the_process_goes_on_and_nothing_is_said(agent, before):
    assert run(before + "session()\nprint(len(record.sessions))", agent) == "1\n"
    assert heard(agent) == []


def test_a_process_that_can_never_tell_keeps_nothing_of_its_tries(agent):
    code = AUDITED + "session()\nimport atexit\nbefore = atexit._ncallbacks()\n[session() for _ in range(20)]\n"
    assert run(code + "print(atexit._ncallbacks() - before)", agent) == "0\n"


WRONG = ["localhost:8126/serve", "agent.raddle:8126", "8126", "x", "/", ":", "127.0.0.1:", "127.0.0.1:1e3", "[::1]",
         "127.0.0.1:99999999999999999999", "127.0.0.1:70000/a", ":8126/a", "$(RADDLE_AGENT_SERVICE_HOST):8126/a",
         "<broadcast>:8126"]  # fmt: skip


@pytest.mark.parametrize("where", WRONG)
def test_what_is_no_address_is_not_looked_up(where):
    code = 'names = []\nsys.addaudithook(lambda event, _: names.append(event) if "addrinfo" in event else None)\n'
    assert run(code + "session()\nprint(names)", where) == "[]\n"


@pytest.mark.parametrize("where", WRONG)
def test_what_is_no_address_has_no_destination(where):
    with pytest.raises((OSError, ValueError, OverflowError)):
        datagrams.send(where, {}, [])


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("10.96.0.12:8126/serve", (socket.AF_INET, ("10.96.0.12", 8126), "serve")),
        ("fd00::1:8126/serve", (socket.AF_INET6, ("fd00::1", 8126), "serve")),
        ("[fd00::1]:8126/serve", (socket.AF_INET6, ("fd00::1", 8126), "serve")),
        ("10.96.0.12:8126", (socket.AF_INET, ("10.96.0.12", 8126), "")),
    ],
)
def test_an_address_is_of_either_family_with_brackets_or_without(where, found):
    assert datagrams.destination(where) == found


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module has another name")
def test_a_subinterpreter_does_no_harm(agent):
    code = """
import _xxsubinterpreters as interpreters
one = interpreters.create()
interpreters.run_string(one, f"import sys; sys.path[:] = {sys.path!r}\\n" + START + "session()")
interpreters.destroy(one)
"""
    run(f"START = {START!r}\n" + code, agent)
    assert all(one["sessions"] in ([], [{"runtime": "toy", "source": "plan", "alike": 1, "threads": 2}])
               for one in heard(agent))  # fmt: skip


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(agent, monkeypatch):
    """told(at): what this process tells at that time."""
    record.sessions.clear()
    sender = datagrams.DatagramSender()
    where = f"127.0.0.1:{agent.getsockname()[1]}"

    def call(at):
        sender.send_if_due(where, at)
        return [one["sessions"] for one in heard(agent)]

    yield call
    record.sessions.clear()


def observed(*counts):
    runs = observe.Runs()
    for exponent, count in counts:
        runs.counts[exponent] = count
    return {"runtime": "toy", "effective": {"intraOp": 2}, "because": {}, "runs": runs}


def test_runs_are_told_of_every_half_minute_and_what_is_the_same_every_five(told):
    record.sessions.append(observed())
    runs = record.sessions[0]["runs"]
    silent = {"runtime": "toy", "source": "plan", "alike": 1, "threads": 2, "runs": 0, "runNs": 0, "log2ns": {}}
    assert told(0.0) == [[silent]]
    runs.counts[20] += 3
    assert told(29.0) == []
    ((said,),) = told(31.0)
    assert (said["runs"], said["log2ns"]) == (3, {"20": 3})
    assert told(300.0) == []
    assert len(told(332.0)) == 1


def test_a_session_that_has_come_is_told_of_at_once(told):
    record.sessions.append(observed())
    told(0.0)
    record.sessions.append(observed())
    assert told(0.1)[0][0]["alike"] == 2


def test_runs_of_all_lengths_are_counted_once(told):
    record.sessions.append(observed(*((exponent, 1) for exponent in range(64))))
    ((said,),) = told(0.0)
    assert said["runs"] == 64
    assert said["log2ns"] == {"18": 19, **{str(exponent): 1 for exponent in range(19, 35)}}


# --- what -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effective", "because", "found"),
    [
        ({"intraOp": 4}, {}, (4, "plan")),
        ({"intraOp": 4}, {"intraOp": "planned 8, cut to quota 4"}, (4, "plan")),
        ({"intraOp": 16}, {"intraOp": "set in the code"}, (16, "code")),
        ({"intraOp": 16}, {"intraOp": "set in the environment"}, (16, "code")),
        ({"torchIntraOp": 8, "torchInterOp": 1}, {"torchIntraOp": "MKL_NUM_THREADS"}, (8, "code")),
        ({"torchIntraOp": 2}, {"torchIntraOp": "OMP_NUM_THREADS is not set"}, (2, "plan")),
        ({"omp": 2}, {}, (2, "plan")),
        ({}, {"intraOp": "the process's global thread pool"}, (None, "default")),
    ],
)
def test_who_has_set_a_sessions_threads_is_read_from_its_reasons(effective, because, found):
    assert groups.in_effect({"effective": effective, "because": because}) == found


runs = st.none() | st.lists(st.integers(0, 10**12), min_size=64, max_size=64)


@given(
    st.lists(
        st.tuples(st.from_regex("[a-z][a-z.]{0,50}", fullmatch=True), st.none() | st.integers(1, 1024), runs),
        max_size=60,
    )
)
def test_whatever_there_is_fits_a_datagram_that_the_agent_reads(made):
    record.sessions.clear()
    for runtime, threads, counts in made:
        session = {"runtime": runtime, "effective": {} if threads is None else {"intraOp": threads}, "because": {}}
        if counts is not None:
            session["runs"] = observe.Runs()
            session["runs"].counts[:] = counts
        record.sessions.append(session)
    message = datagrams.message("c" * 63, {"threads": 10**6, "againS": 300}, datagrams.sessions())
    record.sessions.clear()
    assert len(received.parse(message).sessions) <= len(made)
