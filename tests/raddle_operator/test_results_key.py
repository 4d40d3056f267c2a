"""What a result is valid for: the same kind of node and limit, and nothing known to be another."""

from dataclasses import replace

import pytest
from hypothesis import given
from support import tunings
from support.examples import examples
from support.machines import described_machines, of_size

from raddle.cpus.topology import CoreType
from raddle_operator.objects import nodetopology
from raddle_operator.results.key import NodeClass, mismatch
from raddle_operator.results.objective import Kind, Objective

KEY = tunings.key()


@given(tunings.keys)
def test_a_result_is_valid_where_it_was_made(key):
    assert mismatch(key, key) == ""


@given(tunings.keys, tunings.keys)
def test_fitting_is_the_same_both_ways(one, other):
    assert bool(mismatch(one, other)) == bool(mismatch(other, one))


OTHERS = {
    "model": ({"model": "sha256:" + "77" * 32},
     "the model is sha256:777777777777, but the tuning is for sha256:5e5e5e5e5e5e"),
    "image": ({"image": "sha256:" + "77" * 32},
     "the image is sha256:777777777777, but the tuning is for sha256:1a1a1a1a1a1a"),
    "limit": ({"limit_cpus": 1.0}, "the CPU limit is 1 CPU, but the tuning is for 2 CPUs"),
    "no limit": ({"limit_cpus": None}, "the CPU limit is no limit, but the tuning is for 2 CPUs"),
    "exclusive CPUs": ({"exclusive": True}, "the CPU limit is 2 exclusive CPUs, but the tuning is for 2 CPUs"),
    "runtime": ({"runtime": "torch", "runtime_version": "2.9.0"}, ("the runtime is torch, but the tuning is for "
        "onnxruntime")),
    "version": ({"runtime_version": "1.30.1"}, "onnxruntime is 1.30.1, but the tuning is for 1.29.0"),
    "objective": ({"objective": Objective(kind=Kind.THROUGHPUT)},
     "the objective is Throughput, but the tuning is for Latency"),
    "rate": ({"objective": replace(KEY.objective, rate=80.0)},
     "the rate is 80 requests/s, but the tuning is for 50 requests/s"),
    "bound": ({"objective": replace(KEY.objective, p99_ms=10.0)}, ("the bound of p99 is 10 ms, but the tuning is for "
        "20 ms")),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), OTHERS.values(), ids=OTHERS)
def test_what_differs_is_said_with_both_values(changes, reason):
    assert mismatch(KEY, replace(KEY, **changes)) == reason


def test_another_node_class_is_said_by_its_shape():
    there = replace(KEY, node_class=NodeClass.of(of_size(16)))
    assert mismatch(KEY, there) == (
        "the node is Synthetic, 1 socket, 1 NUMA node, 2 L3 domains, 8 cores, 16 CPUs, but the tuning is for "
        "Synthetic, 2 sockets, 2 NUMA nodes, 2 L3 domains, 16 cores, 32 CPUs"
    )


def test_classes_that_read_alike_are_told_apart_by_their_architecture():
    there = replace(KEY, node_class=replace(KEY.node_class, architecture="aarch64"))
    assert "(aarch64), but the tuning is for" in mismatch(KEY, there)


def test_all_that_differs_is_said():
    there = replace(KEY, limit_cpus=1.0, runtime_version="1.30.1")
    assert mismatch(KEY, there).count("but the tuning is for") == 2


@pytest.mark.parametrize("name", ["model", "image", "runtime", "runtime_version"])
def test_what_one_side_does_not_know_is_not_compared(name):
    assert mismatch(KEY, replace(KEY, **{name: ""})) == ""
    assert mismatch(replace(KEY, **{name: ""}), KEY) == ""


def test_an_objective_without_rate_and_bound_fits_any_of_its_kind():
    assert mismatch(KEY, replace(KEY, objective=Objective(kind=Kind.LATENCY))) == ""


@given(described_machines())
@examples(0.4)
def test_a_node_is_of_the_same_class_as_its_topology_object_says(machine):
    published = nodetopology.from_object(nodetopology.to_object(machine, "worker-7", "uid"))
    assert NodeClass.of(published) == NodeClass.of(machine)


def test_a_boot_or_another_numbering_of_the_cpus_does_not_make_another_class():
    machine = of_size(32)
    assert NodeClass.of(machine._replace(boot_id="another")) == NodeClass.of(machine)
    assert NodeClass.of(machine._replace(cores=machine.cores[::-1])) == NodeClass.of(machine)


def test_a_hybrid_machine_says_how_many_cpus_are_of_which_kind():
    machine = of_size(16)._replace(core_types=(CoreType("p-core", 0xFFF), CoreType("e-core", 0xF000)))
    assert NodeClass.of(machine).title.endswith("12 of them p-core, 4 of them e-core")
