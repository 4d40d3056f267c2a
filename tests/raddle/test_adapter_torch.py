"""PyTorch's counts decided without PyTorch, and the adapter on stand-ins for what the real one can't show here.

The real one: tests/runtimes/test_torch.py.
"""

import _thread
import queue
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtimes.torch_stand_in import Torch

from raddle import env, log
from raddle.adapters import torch as adapter
from raddle.adapters import version_of
from raddle.adapters.torch.counts import Choice, choose, environment_count
from raddle.adapters.torch.inter_op import InterOp
from raddle.process.current import Facts

EIGHT = 0xFF


@pytest.mark.parametrize(
    ("fields", "environ", "facts", "intra", "set_intra", "because"),
    [
        # The environment's count is the plan's: nothing is called.
        # What stands there is never Raddle's, also where it is the planned count.
        ({"omp": 2}, {"OMP_NUM_THREADS": "2"}, Facts(EIGHT), 2, None, "OMP_NUM_THREADS"),
        ({"omp": 2}, {"MKL_NUM_THREADS": "2"}, Facts(EIGHT), 2, None, "MKL_NUM_THREADS"),
        # Nothing was completed.
        ({"omp": 2}, {}, Facts(EIGHT), 2, 2, None),
        ({"omp": 2}, {"OMP_NUM_THREADS": ""}, Facts(EIGHT), 2, 2, None),
        ({"omp": 2}, {"OMP_NUM_THREADS": "0"}, Facts(EIGHT), 2, 2, None),
        ({"omp": 2}, {"OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "-1"}, Facts(EIGHT), 2, 2, None),
        # Somebody else's count, in torch's order of precedence.
        ({"omp": 2}, {"OMP_NUM_THREADS": "1"}, Facts(EIGHT), 1, None, "OMP_NUM_THREADS"),
        ({"omp": 2}, {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "5"}, Facts(EIGHT), 5, None, "MKL_NUM_THREADS"),
        ({"omp": 2}, {"OMP_NUM_THREADS": "5", "MKL_NUM_THREADS": "2"}, Facts(EIGHT), 2, None, "MKL_NUM_THREADS"),
        (
            {"omp": 2, "existing_values": "override"},
            {"OMP_NUM_THREADS": "1"},
            Facts(EIGHT),
            2,
            2,
            "OMP_NUM_THREADS=1 is overridden",
        ),
        (
            {"omp": 2, "existing_values": "override"},
            {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "5"},
            Facts(EIGHT),
            2,
            2,
            "MKL_NUM_THREADS=5 is overridden",
        ),
        ({"omp": 2, "existing_values": "override"}, {"OMP_NUM_THREADS": "2"}, Facts(EIGHT), 2, None, None),
        # The container has less than was planned.
        ({"omp": 4}, {}, Facts(EIGHT, 2.0), 2, 2, "planned 4, cut to quota 2"),
        ({"omp": 4}, {}, Facts(0b11), 2, 2, "planned 4, cut to CPU affinity of 2"),
        (
            {"omp": 4, "min_intra_op": 3},
            {},
            Facts(0b11),
            3,
            3,
            "planned 4, cut to CPU affinity of 2",
        ),
        (
            {"omp": 4, "workers": 1},
            {},
            Facts(EIGHT, workers_seen=4),
            2,
            2,
            "planned 4, cut to CPU affinity of 8, shared by 4 workers",
        ),
        # A count of somebody else's is not cut, and ORT's count is not torch's.
        ({"omp": 4}, {"OMP_NUM_THREADS": "8"}, Facts(0b11), 8, None, "OMP_NUM_THREADS"),
        ({"omp": 1, "intra_op": 4}, {}, Facts(EIGHT), 1, 1, None),
        # The family isn't chosen.
        ({"intra_op": 4, "torch_inter_op": 1}, {"OMP_NUM_THREADS": "3"}, Facts(EIGHT), None, None, None),
    ],
)
def test_set_num_threads_is_called_only_where_the_environment_does_not_lead_to_the_planned_count(
    fields, environ, facts, intra, set_intra, because
):
    found = choose(fields, environ, facts)
    assert (found.intra_op, found.set_intra_op, found.because.get("intraOp")) == (intra, set_intra, because)


@pytest.mark.parametrize(
    ("fields", "facts", "inter", "because"),
    [
        ({"torch_inter_op": 1}, Facts(EIGHT), 1, None),
        ({"torch_inter_op": 4, "inter_op": 1}, Facts(EIGHT), 4, None),
        ({"torch_inter_op": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({"torch_inter_op": 4, "min_inter_op": 4}, Facts(EIGHT, 2.0), 4, None),
        ({"inter_op": 4, "omp": 2}, Facts(EIGHT), None, None),
    ],
)
def test_the_inter_op_count_is_torchs_own(fields, facts, inter, because):
    found = choose(fields, {}, facts)
    assert (found.inter_op, found.because.get("interOp")) == (inter, because)


@given(
    planned=st.integers(1, 1024),
    omp=st.text("0123456789,abc -", max_size=6),
    mkl=st.text("0123456789,abc -", max_size=6),
    cpus=st.none() | st.integers(1, 2**64),
    existing=st.sampled_from(["respect", "override"]),
)
def test_the_plan_never_gives_more_than_it_says_and_respects_what_is_set(planned, omp, mkl, cpus, existing):
    environ = {"OMP_NUM_THREADS": omp, "MKL_NUM_THREADS": mkl}
    found = choose({"omp": planned, "existing_values": existing}, environ, Facts(cpus))
    own = environment_count(environ)[1]
    assert found.set_intra_op is None or 1 <= found.set_intra_op <= planned
    if own is not None and existing == "respect":
        assert (found.intra_op, found.set_intra_op) == (own, None)


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, ("", None)),
        ({"OMP_NUM_THREADS": "4"}, ("OMP_NUM_THREADS", 4)),
        ({"OMP_NUM_THREADS": " 4,2"}, ("OMP_NUM_THREADS", 4)),
        ({"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "3"}, ("MKL_NUM_THREADS", 3)),
        ({"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "none"}, ("OMP_NUM_THREADS", 4)),
        ({"OMP_NUM_THREADS": "-4"}, ("", None)),
        ({"OMP_NUM_THREADS": "9" * 5000}, ("OMP_NUM_THREADS", 999999999)),
        ({"OMP_NUM_THREADS": "٤"}, ("", None)),
    ],
)
def test_variables_are_read_as_torch_reads_them(environ, count):
    assert environment_count(environ) == count


@pytest.mark.parametrize(
    ("version", "numbers"), [("2.7.1+cpu", (2, 7)), ("1.13.0a0", (1, 13)), ("2.10.0", (2, 10)), ("main", ()), ("", ())]
)
def test_a_version_is_two_numbers(version, numbers):
    assert version_of(version) == numbers


def test_the_line_says_what_decided():
    choice = choose({"omp": 4, "torch_inter_op": 1}, {}, Facts(0b11))
    assert choice.line("2.7.1") == "torch 2.7.1: intra_op=2 (planned 4, cut to CPU affinity of 2), inter_op=1"
    assert Choice().line("2.7.1") == "torch 2.7.1: intra_op=default, inter_op=default"


def wrapped(torch, count=2, *, fresh=True, override=False):
    choice = Choice()
    choice.inter_op, choice.override = count, override
    inter_op = InterOp(torch, choice, count, fresh=fresh, changed=lambda **_: None)
    inter_op.replace()
    return inter_op


def said_since(before):
    return log.complaints[before:]


@pytest.mark.parametrize("version", ["1.13.1", "2.7.1"])
def test_the_planned_inter_op_count_waits_for_the_first_script(version):
    torch = Torch(version)
    call = torch._C.ScriptMethod.__call__
    wrapped(torch)
    assert (torch.pool, torch.get_num_interop_threads()) == (None, 2)
    assert torch._C.ScriptMethod()() == "ran"
    assert (torch.pool, torch.get_num_interop_threads()) == (2, 2)
    # From then on a run costs what it did.
    assert torch._C.ScriptMethod.__call__ is call


def test_the_applications_own_inter_op_count_wins_before_the_first_script():
    torch = Torch("2.7.1")
    inter_op = wrapped(torch)
    torch.set_num_interop_threads(5)
    torch._C.fork()
    assert (torch.pool, inter_op.choice.because) == (5, {"interOp": "set in the code"})
    # As torch itself does.
    with pytest.raises(RuntimeError):
        torch.set_num_interop_threads(5)


@pytest.mark.parametrize("override", [False, True])
def test_a_count_of_the_applications_after_ours_is_taken_silently_once(override):
    torch = Torch("2.7.1")
    wrapped(torch, override=override)
    torch._C.fork()
    before = len(log.complaints)
    torch.set_num_interop_threads(7 + override)
    assert torch.pool == 2
    why = "the policy overrides it" if override else "TorchScript has run before"
    assert said_since(before) == [f"torch.set_num_interop_threads({7 + override}) has no effect: {why}, inter_op=2"]
    with pytest.raises(RuntimeError):
        torch.set_num_interop_threads(7)


def test_a_count_that_is_set_where_no_python_code_calls_reaches_torch():
    reached, torch = queue.Queue(), Torch("2.7.1")
    torch.set_num_threads = reached.put
    adapted = adapter._Torch(torch, Choice(), fresh=True)
    # Neither such a thread nor atexit has a caller's frame.
    _thread.start_new_thread(adapted.set, ((3,), {}))
    assert reached.get(timeout=60) == 3
    assert adapted.choice.intra_op == 3


def test_a_count_reaches_torch_where_raddle_can_load_no_more_of_itself(monkeypatch):
    """After chroot, or without a free descriptor."""
    monkeypatch.setitem(sys.modules, "raddle.process.machine_counts", None)
    reached, torch = [], Torch("2.7.1")
    torch.set_num_threads = reached.append
    adapter._Torch(torch, Choice(), fresh=True).set((3,), {})
    assert reached == [3]


@pytest.mark.parametrize("bad", [(), ("two",), (0,), (-1,)])
def test_a_call_that_torch_refuses_reaches_torch(bad):
    torch = Torch("2.7.1")
    wrapped(torch)
    torch._C.fork()
    with pytest.raises((RuntimeError, TypeError)):
        torch.set_num_interop_threads(*bad)


@pytest.mark.parametrize(("version", "calls"), [("2.1.0", 0), ("2.2.0", 1)])
def test_a_torch_that_dies_of_a_late_call_gets_none_where_it_may_be_late(version, calls):
    torch = Torch(version)
    torch.pool = 3
    inter_op = wrapped(torch, fresh=False)
    before = len(log.complaints)
    torch._C.fork()
    assert (len(torch.asked), torch.pool) == (calls, 3)
    assert (inter_op.choice.effective(), inter_op.choice.reasons()) == (
        {"torchInterOp": 3},
        {"torchInterOp": "may have been set before"},
    )
    assert len(said_since(before)) <= 1  # each thing is said once per process


def test_a_child_whose_parent_had_threads_leaves_an_old_torch_alone():
    torch = Torch("1.13.1")
    inter_op = wrapped(torch)
    inter_op.forked(had_threads=True)
    torch._C.fork()
    assert torch.pool is None


def test_a_torch_without_the_hooks_gets_the_count_at_once():
    torch = Torch("2.7.1")
    del torch._C.fork
    wrapped(torch)
    assert torch.pool == 2


@pytest.mark.parametrize("plan", ["v=2;omp=2", "omp", "v=1;omp=0", "v=1;omp=4096", "v=1;intra_op=2"])
def test_a_plan_that_says_nothing_usable_leaves_the_module_untouched(plan, monkeypatch):
    monkeypatch.setenv(log.ANNOUNCED, "torch")  # the line is another test's
    torch = Torch("2.7.1")
    untouched = dict(vars(torch))
    adapter.install(torch, plan)
    assert vars(torch) == untouched


def test_a_module_that_is_not_torch_is_left_alone_with_a_line():
    before = len(log.complaints)
    adapter.install(types.ModuleType("torch"), f"v={env.VERSION};omp=2;torch_inter_op=1")
    assert [line.partition(":")[0] for line in said_since(before)] == ["torch is not configured"]
