"""What adapters of libraries share, with stand-ins that the real ones can't be: they fail, they lack an argument."""

import functools
import inspect
import json
import os
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from raddle import env, log
from raddle.adapters import cpu_count, numexpr
from raddle.adapters.library import Library, place
from raddle.adapters.onnxruntime_genai import overlay

# The stand-ins' frames are a library's own to the adapter.
__name__ = "hnswlib.stand_in"

PLAN = "v=1;intra_op=1"


def library(plan=PLAN, **kwargs):
    made = Library("toy", **kwargs)
    made.read(types.ModuleType("toy.part"), plan)
    return made


def toy(module_plan=PLAN):
    """A module whose `work` has the argument by position or by name, and whose `make` by name only."""
    module = types.ModuleType("toy")

    def work(data, threads=0):
        """Its text."""
        return data, threads

    def make(*, threads=None, **others):
        return threads, others

    module.work, module.make = work, make
    module.plain = lambda data: data
    made = library(module_plan)
    for name in ("work", "make", "plain", "absent"):
        made.argument(module, name, "threads")
    return module


@pytest.mark.parametrize(
    ("call", "respected", "overridden"),
    [
        (lambda toy: toy.work(7), (7, 1), (7, 1)),
        (lambda toy: toy.work(7, 0), (7, 1), (7, 1)),
        (lambda toy: toy.work(data=7, threads=None), (7, 1), (7, 1)),
        (lambda toy: toy.work(7, 5), (7, 5), (7, 1)),
        (lambda toy: toy.work(7, threads=5), (7, 5), (7, 1)),
        (lambda toy: toy.make(), (1, {}), (1, {})),
        (lambda toy: toy.make(threads=5, other=6), (5, {"other": 6}), (1, {"other": 6})),
        # It has no such argument.
        (lambda toy: toy.plain(7), 7, 7),
    ],
)
def test_only_a_count_that_the_code_does_not_pass_is_the_plan_s(call, respected, overridden):
    assert call(toy()) == respected
    assert call(toy(PLAN + ";existing_values=override")) == overridden


def test_without_a_count_in_the_plan_nothing_is_passed():
    assert toy("v=1;exclusive_cpus=0").work(7) == (7, 0)


def test_a_plan_for_other_families_has_openmp_s_count():
    assert toy("v=1;omp=1").work(7) == (7, 1)
    assert library("v=1;intra_op=1;omp=1", key="omp").wanted().intra_op == 1


def test_the_function_looks_as_it_did_and_refuses_what_it_refused():
    stock, ours = types.SimpleNamespace(), toy()
    assert str(inspect.signature(ours.work)) == "(data, threads=0)"
    assert (ours.work.__name__, ours.work.__doc__) == ("work", "Its text.")
    stock.work = ours.work.__wrapped__
    said = []
    for each in (stock, ours):
        with pytest.raises(TypeError) as caught:
            each.work()
        said.append(str(caught.value))
        assert caught.value.__context__ is None
    assert said[0] == said[1]


def test_a_function_is_wrapped_once():
    module, made = types.SimpleNamespace(work=lambda threads=0: threads), library()
    made.argument(module, "work", "threads")
    first = module.work
    made.argument(module, "work", "threads")
    assert module.work is first


def failing(*_):
    raise KeyError("ours")


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_fails_in_the_adapter_leaves_the_call_as_the_code_made_it(when):
    calls = []
    module = types.SimpleNamespace(work=lambda *args, **kwargs: calls.append((args, kwargs)) or "done")
    library().wrap(module, "work", **{when: failing})
    assert module.work(7, threads=0) == "done"
    assert calls == [((7,), {"threads": 0})]
    assert "toy is not configured: KeyError('ours')" in log.complaints


def test_an_argument_that_can_not_be_compared_is_the_library_s_to_judge():
    class Odd:
        def __eq__(self, other):
            raise ValueError("hnswlib's")

        __hash__ = None

    odd = Odd()
    assert toy().work(7, odd) == (7, odd)


def test_what_the_library_raises_comes_from_the_library():
    def refusing(threads=0):
        raise RuntimeError(f"not {threads}")

    module = types.SimpleNamespace(work=refusing)
    library().argument(module, "work", "threads")
    with pytest.raises(RuntimeError, match="not 1") as caught:
        module.work()
    frames = [frame.name for frame in caught.traceback]
    assert frames[-1] == "refusing"
    assert "wrapped" not in frames


def test_a_setter_is_overridden_only_where_the_policy_says_so():
    def thing():
        return type("Thing", (), {"set": lambda self, threads: threads})

    respected, overridden = thing(), thing()
    library().setter(respected, "set")
    library(PLAN + ";existing_values=override").setter(overridden, "set")
    assert (respected().set(7), respected().set(threads=7)) == (7, 7)
    assert (overridden().set(7), overridden().set(threads=7)) == (1, 1)


@pytest.mark.parametrize(
    ("own", "expected"), [("", 1), ("OMP_NUM_THREADS", 8), ("NUMEXPR_NUM_THREADS", 8), ("NUMEXPR_MAX_THREADS", 8)]
)
def test_numexpr_keeps_the_count_of_each_of_its_variables(monkeypatch, own, expected):
    for name in ("OMP_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if own:
        monkeypatch.setenv(own, "8")
    module = types.ModuleType("numexpr")
    module.MAX_THREADS = module.nthreads = 8
    module.set_num_threads = functools.partial(setattr, module, "nthreads")
    numexpr.install(module, "v=1;omp=1")
    assert module.nthreads == expected


EVERY = os.cpu_count()


@pytest.mark.skipif(EVERY < 2, reason="needs two CPUs")
def test_a_count_that_is_only_the_machine_s_is_the_plan_s_and_each_other_one_is_said(capfd, monkeypatch):
    monkeypatch.delenv(log.ANNOUNCED, raising=False)
    made = Library("manytoy")
    made.read(types.ModuleType("manytoy"), "v=1;intra_op=1")
    thing = type("Thing", (), {"set": lambda self, threads: threads, "search": lambda self, threads=0: threads})
    made.setter(thing, "set")
    made.argument(thing, "search", "threads")

    def calls():
        one = thing()
        return one.search(), one.search(EVERY), one.set(EVERY), one.search(threads=EVERY + 1), one.set(EVERY + 1)

    one = [min(os.sched_getaffinity(0))]
    with ThreadPoolExecutor(1) as alone:
        # What the process may use is one CPU: its only thread that is asked is bound, as with taskset.
        monkeypatch.setattr(os, "listdir", lambda path: [] if path == "/proc/self/task" else listdir(path))
        found = alone.submit(lambda: (os.sched_setaffinity(0, one), calls())[1]).result()
    assert found == (1, 1, 1, EVERY + 1, EVERY + 1)
    assert capfd.readouterr().err.splitlines() == [
        "raddle: manytoy: threads=1",
        f"raddle: manytoy: threads={EVERY + 1} (set in the code, above CPU affinity of 1)",
    ]


listdir = os.listdir


def test_the_count_is_cut_and_the_line_says_so(capfd):
    made = Library("cuttoy")
    made.read(types.ModuleType("cuttoy"), "v=1;intra_op=1024")
    made.note()
    count = made.wanted().intra_op
    assert count <= len(os.sched_getaffinity(0))
    assert capfd.readouterr().err.startswith(f"raddle: cuttoy: threads={count} (planned 1024, cut to ")


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda threads: None, 0),
        (lambda data, *, threads: None, "by name"),
        (lambda data: None, None),
        (types.SimpleNamespace(__doc__="work(data, threads: int)"), "by name"),
        (types.SimpleNamespace(__doc__=None), None),
        (functools.partial(print), None),
        (None, None),
    ],
)
def test_where_a_function_has_the_argument(function, found):
    at = place(function, "threads")
    assert at == found or (found == "by name" and at > 1000)


@pytest.mark.parametrize(
    ("model", "spins", "expected"),
    [
        ({"decoder": {}}, True, {"decoder": {"intra_op_num_threads": 2}}),
        ({}, True, {"decoder": {"intra_op_num_threads": 2}}),
        ({"decoder": {"session_options": {"intra_op_num_threads": 0}}}, True, {"decoder": {"intra_op_num_threads": 2}}),
        ({"decoder": {"session_options": {"intra_op_num_threads": 8}}}, True, {}),
        (
            {"decoder": {"session_options": {"intra_op_num_threads": 8}}},
            False,
            {"decoder": {"session.intra_op.allow_spinning": "0"}},
        ),
        # What has no options of its own takes the decoder's.
        (
            {"vision": {"filename": "v"}, "embedding": {"session_options": {}}, "type": "x"},
            True,
            {"decoder": {"intra_op_num_threads": 2}, "embedding": {"intra_op_num_threads": 2}},
        ),
    ],
)
def test_what_is_laid_over_a_genai_model_s_configuration(model, spins, expected):
    said = overlay({"model": model}, 2, spins=spins)
    made = json.loads(said)["model"] if said else {}
    assert made == {part: {"session_options": options} for part, options in expected.items()}


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({env.LITERALS: "KMP_BLOCKTIME=1;PYTHON_CPU_COUNT=2", "PYTHON_CPU_COUNT": "2"}, 2),
        # The user's: not listed, or changed since.
        ({"PYTHON_CPU_COUNT": "2"}, None),
        ({env.LITERALS: "KMP_BLOCKTIME=1", "PYTHON_CPU_COUNT": "2"}, None),
        ({env.LITERALS: "PYTHON_CPU_COUNT=2", "PYTHON_CPU_COUNT": "8"}, None),
        ({env.LITERALS: "PYTHON_CPU_COUNT=2"}, None),
        ({env.LITERALS: "PYTHON_CPU_COUNT=0", "PYTHON_CPU_COUNT": "0"}, None),
        ({env.LITERALS: "PYTHON_CPU_COUNT=x", "PYTHON_CPU_COUNT": "x"}, None),
        ({env.LITERALS: "PYTHON_CPU_COUNT=" + "9" * 99, "PYTHON_CPU_COUNT": "9" * 99}, None),
        ({}, None),
    ],
)
def test_python_s_count_of_cpus_is_the_one_that_raddle_wrote(environ, count):
    assert cpu_count.planned(environ) == count
