"""The virtual node: its scenarios against the planner, its disk, and what its first process is told."""

import shlex

import pytest

from e2e import guest, guestdisk
from e2e.scenarios import NUMA_NODES, RESIZED, SCENARIOS
from e2e.settings import GUEST, HOST
from lab import plans
from raddle.cpus import cpuset
from unavailable import UnavailableError
from vm import qemu, shapes

ON_GUEST = [one for one in (*SCENARIOS, RESIZED) if GUEST.name in one.nodes]


def planned(container):
    """The container's plan on the recorded machine of the guest's shape, and what it comes to within its limits."""
    node = plans.machine(guest.SHAPE, GUEST.reserved_cpus)
    bound = plans.bind(plans.pod(container.spec()["resources"], ["app"]), node)
    exclusive = NUMA_NODES[1] if container.exclusive else GUEST.cpus
    return bound.planned()["intra_op"], bound.within(exclusive, container.quota_cpus)


@pytest.mark.parametrize("scenario", ON_GUEST, ids=str)
def test_a_scenario_expects_the_threads_of_the_planner_on_that_machine(scenario):
    (container,) = scenario.expected(GUEST.name)
    plan, within = planned(container)
    assert (plan, min(plan, within.intra_op)) == (container.threads, container.threads)


def test_exclusive_cpus_of_one_numa_node_get_a_thread_for_each_core_and_are_tied_to_it():
    (whole,) = (one for one in ON_GUEST if one.name == "whole-cores")
    _, found = planned(whole.containers[0])
    assert (found.intra_op, found.affinity) == (2, "numa")


def test_the_numa_nodes_are_those_of_the_guest():
    shape = shapes.get(guest.SHAPE)
    nodes = [cpuset.format_list(cpuset.of(shape.cpus_of_node(node))) for node in range(len(shape.numa_nodes))]
    assert tuple(nodes) == NUMA_NODES


def test_one_deployment_has_another_number_on_each_node():
    (both,) = (one for one in SCENARIOS if len(one.nodes) > 1)
    assert both.nodes == (HOST.name, GUEST.name)
    assert both.expected(HOST.name)[0].threads != both.expected(GUEST.name)[0].threads
    assert both.expected(HOST.name)[0].spec() == both.expected(GUEST.name)[0].spec()


def test_the_modules_are_loaded_after_those_that_they_need():
    needs = {"virtio_net": "virtio_pci", "virtio_pci": "virtio", "virtio": "virtio_ring", "bridge": "stp"}
    order = guestdisk.MODULES
    assert all(order.index(module) > order.index(needed) for module, needed in needs.items())


def test_the_guests_shell_is_told_its_place_in_the_network():
    lines = dict(line.split("=", 1) for line in guest.environment(GUEST).splitlines())
    told = {name: shlex.split(value) for name, value in lines.items()}
    assert told["name"] == [GUEST.name]
    assert told["address"] == [GUEST.address]
    assert told["gateway"] == [GUEST.host_address]
    assert told["modules"] == [" ".join(guestdisk.MODULES)]


@pytest.mark.parametrize(
    ("told", "problem"),
    [(1000, False), (1030, False), (900, True), (1200, True)],
    ids=["at", "later", "behind", "ahead"],
)
def test_a_clock_is_right_between_the_start_and_now(told, problem):
    assert bool(guest.clock_problem(told, started_at=1000.0, now=1100.0)) is problem


def test_the_guest_has_a_disk_that_is_not_written_to_and_a_cable():
    machine = qemu.Guest(kernel="k", initramfs="i", disk="d", node_mib=guest.NODE_MIB, tap=GUEST.cable)
    words = " ".join(qemu.arguments(shapes.get(guest.SHAPE), machine))
    assert "snapshot=on" in words
    assert f"ifname={GUEST.cable}" in words


def test_a_machine_without_qemu_says_which_package_it_lacks(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match=r"qemu-system-x86|x86_64"):
        guest.need()
