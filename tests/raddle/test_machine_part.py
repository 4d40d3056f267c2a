"""What RADDLE_PLAN carries of a machine: a pool is placed on it as on the machine itself, and no text does harm."""

import random
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples
from support.machines import described_machines
from support.machines import machines as any_machines

import machines
from raddle import env, keys
from raddle.cpus import cpuset, machine_part
from raddle.cpus.machine_part import MAX_CPUS, fields_of, machine_of
from raddle.cpus.placement import PlacementPolicy, pin, place
from raddle.cpus.topology import GPU, CoreType, Group, Kubelet, Machine, NUMANode
from raddle.machine.sysfs import read_machine
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from raddle.planning.wire import shim_text

WISHES = tuple(
    PlacementPolicy(*wanted)
    for wanted in product(("auto", "single", "any"), ("auto", *keys.WORDS["core_type"]), (False, True), (False, True))
)
NAMED = {name: read_machine(str(machines.path(name))) for name in machines.names()}


def carried(machine, *, gpu=True):
    """The fields as the container has them, by way of the text."""
    return env.decode(env.encode(dict(next(fields_of(machine, gpu=gpu)))))


def alike(machine, fields, cpus, *, wishes=WISHES):
    """A pool on these CPUs is placed and tied on the part as on the machine, whatever is wished."""
    part = machine_of(fields, cpus)
    assert part is not None
    size = cpuset.count(cpus)
    for wanted in wishes:
        placed = place(machine, size, wanted, cpus)
        assert place(part, size, wanted, cpus) == placed
        for threads, affinity in product({placed.threads, size, 2}, ("numa", "core")):
            for siblings in (True, False):
                tied = pin(machine, cpus, threads, affinity, wanted, siblings=siblings)
                assert pin(part, cpus, threads, affinity, wanted, siblings=siblings) == tied


@pytest.mark.parametrize("name", NAMED)
@given(data=st.data())
@examples(0.25)
def test_any_cpus_of_a_recorded_machine_hold_a_pool_as_they_do_there(name, data):
    machine = NAMED[name]
    cpus = data.draw(st.sets(st.sampled_from(cpuset.ids(machine.online)), min_size=1))
    alike(machine, carried(machine), cpuset.of(cpus), wishes=data.draw(st.permutations(WISHES))[:12])


@given(described_machines() | any_machines(64), st.data())
def test_any_cpus_of_any_machine_hold_a_pool_as_they_do_there(machine, data):
    cpus = data.draw(st.sets(st.sampled_from(cpuset.ids(machine.online)), min_size=1))
    alike(machine, carried(machine), cpuset.of(cpus), wishes=data.draw(st.permutations(WISHES))[:6])


@given(any_machines())
@examples(0.4)
def test_the_whole_of_a_machine_of_any_size_holds_a_pool_as_it_does_there(machine):
    for fields in fields_of(machine, gpu=True):
        if fields:
            wishes = [wanted for wanted in WISHES if wanted.gpu]
            # Without the L3 domains the cores are in another order, and as many.
            whole = "l3" in fields or "l3" not in machine_part.written(machine, gpu=True)
            part = machine_of(fields, machine.online)
            for wanted in wishes:
                placed = [place(one, 4, wanted, machine.online) for one in (machine, part)]
                assert placed[0] == placed[1]
            if whole and machine.online.bit_length() < 100:
                alike(machine, fields, machine.online, wishes=wishes[:4])


@pytest.mark.parametrize("name", NAMED)
def test_no_gpu_is_told_of_where_the_container_has_none(name):
    assert "gpu_nodes" not in next(fields_of(NAMED[name], gpu=False))


def test_a_recorded_machine_takes_at_most_seventy_characters_and_a_large_server_a_quarter_of_the_room(tmp_path):
    def length(machine):
        return len(env.encode(dict(next(fields_of(machine, gpu=True))))) - len("v=1;")

    assert max(map(length, NAMED.values())) == 70
    files = machines.synthesize(sockets=2, numa_nodes=8, l3_domains=16, cores=128)
    assert length(read_machine(str(machines.write(files, tmp_path)))) == 381


# --- machines that are not handed over, or not all of them ----------------------------------------------------------


def test_more_cpus_than_linux_has_are_not_handed_over():
    largest = Machine(online=1 << MAX_CPUS - 1, cores=())
    assert list(fields_of(largest, gpu=False)) == [{"cpus": "8191"}, {"cpus": "8191"}, {}]
    assert list(fields_of(largest._replace(online=1 << MAX_CPUS), gpu=False)) == [{}]


def test_more_kinds_of_core_than_there_can_be_are_not_handed_over():
    kinds = tuple(CoreType(f"capacity-{one}", 1 << one, capacity=one + 1) for one in range(17))
    machine = Machine(online=(1 << 17) - 1, cores=())
    assert next(fields_of(machine._replace(core_types=kinds[:16]), gpu=False))["slow"] == "1"
    assert list(fields_of(machine._replace(core_types=kinds), gpu=False)) == [{}]


def in_turn(groups, cpus):
    """So many groups that have the CPUs in turn."""
    return [cpuset.of(range(group, cpus, groups)) for group in range(groups)]


STATIC = Kubelet(cpu_manager_policy="static")


def text_for(machine, budget=Budget(whole_cpus=8, quota_cpus=8.0)):  # noqa: B008 (a value)
    """RADDLE_PLAN of a container on a node with the static CPU manager."""
    made = plan(machine._replace(kubelet=STATIC), budget, Policy())
    return shim_text(made, Policy(), machine)


def test_a_plan_has_the_machine_only_for_exclusive_cpus():
    machine = NAMED["2s4n-8c16t"]
    assert ";nodes=0-3|4-7|8-11|12-15" in text_for(machine)
    assert ";cpus=" not in text_for(machine, Budget(quota_cpus=8.0))


def test_domains_of_l3_that_have_no_room_are_left_out_and_the_rest_is_handed_over():
    nodes = tuple(NUMANode(number, cpus) for number, cpus in enumerate(in_turn(2, 512)))
    for domains, is_told in ((32, True), (128, False)):
        l3 = tuple(Group(number, cpus) for number, cpus in enumerate(in_turn(domains, 512)))
        text = text_for(Machine(online=(1 << 512) - 1, cores=(), numa_nodes=nodes, l3_domains=l3))
        fields = env.decode(text)
        assert (fields["nodes"], "l3" in fields) == ("0-510:1/2|1-511:1/2", is_told)
        assert len(text) <= env.RESERVED_SHIM


@pytest.mark.parametrize(("cores", "is_told"), [(100, True), (400, False)])
def test_a_machine_whose_siblings_follow_no_order_is_not_handed_over_when_they_are_many(cores, is_told):
    others = random.Random(1).sample(range(500, 1000), cores)
    siblings = tuple(map(cpuset.of, enumerate(others)))
    text = text_for(Machine(online=(1 << 1024) - 1, cores=siblings))
    assert ("cpus" in env.decode(text), "cores" in env.decode(text)) == (is_told, is_told)
    assert len(text) <= env.RESERVED_SHIM


# --- a plan is untrusted --------------------------------------------------------------------------------------------

WHOLE = {"cpus": "0-7", "cores": "0-3|4-7", "nodes": "0-3|4-7", "kinds": "0-3|4-7", "slow": "1", "gpu_nodes": "1"}


def test_what_is_told_is_a_machine():
    found = machine_of(WHOLE, 0xFF)
    assert [cpuset.format_list(core) for core in found.cores] == ["0,4", "1,5", "2,6", "3,7"]
    assert (found.gpus, [kind.capacity for kind in found.core_types]) == ((GPU("", 1),), [1, 2])


@pytest.mark.parametrize(
    "broken",
    [
        {"cpus": ""},
        {"cpus": "0-65535"},
        {"cpus": "3-1"},
        {"cpus": "0-3|4-7"},
        {"cores": "0-3|4-8"},
        {"cores": "0-3|3-5"},
        {"cores": "0-3|4-5|6-7,0"},
        {"cores": "0|1-3"},
        {"cores": "0-3|4-7:1/0"},
        {"nodes": "0-3|3-7"},
        {"nodes": "0-8"},
        {"nodes": ""},
        {"kinds": "|".join("01234567") + "|" * 9},
        {"slow": "0"},
        {"slow": "3"},
        {"slow": "1-2"},
        {"slow": "9" * 1000},
        {"isolated": "9"},
        {"gpu_nodes": "2"},
    ],
)
def test_a_machine_that_contradicts_itself_is_none(broken):
    assert machine_of({**WHOLE, **broken}, 0xFF) is None


@pytest.mark.parametrize("cpus", [1 << 8, 0x1FF, 0])
def test_cpus_that_the_plan_does_not_know_are_only_counted(cpus):
    assert machine_of(WHOLE, cpus) is None


def test_a_plan_without_a_machine_knows_no_cpu():
    assert machine_of({}, 1) is None


LIST = st.text("0123456789,-:/|", max_size=24) | st.sampled_from(list(WHOLE.values()))


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(env.LISTS, LIST)), st.integers(1, 255))
@example(WHOLE, 0xFF)
def test_whatever_is_told_a_pool_is_placed_or_the_cpus_are_counted(fields, cpus):
    part = machine_of(fields, cpus)
    if part is None:
        return
    for wanted in WISHES:
        found = place(part, cpuset.count(cpus), wanted, cpus)
        assert found.cpus
        assert found.cpus & ~cpus == 0
        assert 1 <= found.threads <= cpuset.count(cpus)
        pin(part, cpus, found.threads, "core", wanted)
