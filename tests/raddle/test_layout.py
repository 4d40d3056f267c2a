"""The layout for Throughput is the best of all: fewest idle cores, then larger instances, on any machine."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import captures
from support.machines import machines as any_machine

import machines
from raddle.cpus import cpuset
from raddle.cpus.placement import PlacementPolicy, one_cpu_each
from raddle.cpus.topology import CoreType, Kubelet, Machine
from raddle.machine.sysfs import read_machine
from raddle.planning.layout import CORES_EACH, MOST_IDLE, cache_domains, layout
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy


def fitting(cores, domains, each):
    """The most instances of so many cores that fit: every way to spread them over the domains is tried."""
    if not domains:
        return cores // each
    # Cores that are in no domain are together.
    sizes = [*domains, max(0, cores - sum(domains))]
    ways = product(*(range(size // each + 1) for size in sizes))
    return max(sum(way) for way in ways if sum(way) * each <= cores)


def best(cores, domains):
    idle = {each: cores - each * fitting(cores, domains, each) for each in CORES_EACH}
    least = min(idle.values())
    each = max(each for each in CORES_EACH if idle[each] == least)
    if least > MOST_IDLE * cores:
        return max(1, cores), 1
    return fitting(cores, domains, each), each


def domains_of(machine):
    return cache_domains(machine, one_cpu_each(machine, machine.online, PlacementPolicy()))[0]


def few(domains):
    """So few that every way to spread instances can be tried: equal domains are enough in pairs."""
    return [size for place, size in enumerate(domains) if domains[:place].count(size) < 2][:5]


def holds(domains, cores):
    found = layout(cores, domains, "L3 domains")
    assert (found.workers, found.threads) == best(cores, domains), (cores, domains)


@given(st.integers(0, 40), st.lists(st.integers(1, 14), max_size=4))
def test_it_is_the_best_of_all_ways_to_spread_the_cores(cores, domains):
    holds(domains, cores)


@given(any_machine(64), st.data())
def test_it_is_the_best_of_all_on_a_made_up_machine(machine, data):
    domains = few(domains_of(machine))
    holds(domains, data.draw(st.integers(1, max(1, sum(domains)))))


@pytest.mark.parametrize("name", machines.names())
def test_it_is_the_best_of_all_on_a_recorded_machine(name):
    domains = few(domains_of(read_machine(str(machines.path(name)))))
    for cores in range(1, min(32, sum(domains)) + 1):
        holds(domains, cores)


@pytest.mark.parametrize("name", captures.NAMES)
def test_it_is_the_best_of_all_on_a_machine_that_others_recorded(name, tmp_path):
    domains = few(domains_of(read_machine(str(captures.unpack(tmp_path, name) / name))))
    for cores in range(1, min(32, sum(domains)) + 1):
        holds(domains, cores)


HYBRID = read_machine(str(machines.path("hybrid-6p8e-20t")))


@pytest.mark.parametrize(
    ("budget", "policy", "instances"),
    [
        (Budget(), {}, [(2, 3), (2, 4)]),
        (Budget(quota_cpus=8), {}, [(2, 3), (1, 2)]),
        (Budget(quota_cpus=4), {}, [(1, 4)]),
        (Budget(), {"core_type": "Performance"}, [(2, 3)]),
        (Budget(whole_cpus=16, cpus=cpuset.parse_list("0-7,12-19")), {}, [(1, 4), (2, 4)]),
        # Which cores it will be is up to the kubelet.
        (Budget(whole_cpus=16), {}, [(2, 4)]),
    ],
)
def test_each_kind_of_core_has_instances_of_its_own(budget, policy, instances):
    machine = HYBRID._replace(kubelet=Kubelet("static"))
    found = plan(machine, budget, Policy(objective="Throughput", **policy)).layout
    assert [(found.workers, found.threads), *found.others] == instances


def arm(**sizes):
    """So many cores of each capacity, the slowest first."""
    kinds, first = [], 0
    for name, count in sizes.items():
        kinds.append(CoreType(name, (1 << count) - 1 << first, capacity=int(name.rpartition("_")[2])))
        first += count
    return Machine(online=(1 << first) - 1, cores=tuple(1 << cpu for cpu in range(first)), core_types=tuple(kinds))


@pytest.mark.parametrize(
    ("machine", "quota_cpus", "instances"),
    [
        (arm(a725_731=8, x925_1024=8), None, [(2, 4), (2, 4)]),
        (arm(a725_731=8, x925_1024=8), 12, [(2, 4), (1, 4)]),
        (arm(a725_731=8, x925_1024=8), 8, [(2, 4)]),
        # All but the slowest are one group, as they are for one pool.
        (arm(a510_280=3, a710_855=4, x3_1024=1), None, [(1, 4), (1, 3)]),
    ],
)
def test_the_slowest_cores_of_an_arm_machine_have_instances_of_their_own(machine, quota_cpus, instances):
    found = plan(machine, Budget(quota_cpus=quota_cpus), Policy(objective="Throughput")).layout
    assert [(found.workers, found.threads), *found.others] == instances


@pytest.mark.parametrize(
    ("cores", "domains", "workers", "threads"),
    [
        (4, [3, 3, 3, 3], 2, 2),
        (24, [13, 13, 13, 13], 6, 4),
        (64, [8] * 8, 16, 4),
        (5, [5], 1, 4),
        (112, [14] * 8, 56, 2),
        (12, [1] * 12, 12, 1),
    ],
)
def test_it_fills_domains_side_by_side(cores, domains, workers, threads):
    found = layout(cores, domains, "L3 domains")
    assert (found.workers, found.threads) == (workers, threads)
