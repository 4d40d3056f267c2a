"""Where a pool goes: `place` with the CPUs known and not, what ties its workers, and the advice for Throughput.

tests/raddle/test_placement_table.py has the rules machine by machine; here are the edges of each function.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.cpus import cpuset
from raddle.cpus.placement import PlacementPolicy, affinity_groups, memory_node, pin, place, pool_units
from raddle.cpus.topology import GPU, CoreType, Group, Kubelet, Machine, NUMANode
from raddle.planning.layout import cache_domains, layout
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy

AUTO = PlacementPolicy()


def mask(text):
    return cpuset.parse_list(text)


def machine(cores, numa_nodes=(), l3_domains=(), **more):
    """A machine of these cores, each a CPU list; NUMA nodes and L3 domains are CPU lists too."""
    masks = tuple(mask(core) for core in cores)
    return Machine(
        online=sum(masks),
        cores=masks,
        numa_nodes=tuple(NUMANode(number, mask(cpus)) for number, cpus in enumerate(numa_nodes)),
        l3_domains=tuple(Group(number, mask(cpus)) for number, cpus in enumerate(l3_domains)),
        **more,
    )


def static(**options):
    chosen = tuple((name.replace("_", "-"), "true") for name in options)
    return Kubelet(cpu_manager_policy="static", cpu_manager_policy_options=chosen)


# Two NUMA nodes of 8 cores without SMT, L3 domains of 4.
PLAIN = machine([str(n) for n in range(16)], ["0-7", "8-15"], ["0-3", "4-7", "8-11", "12-15"])
# The same with two threads per core.
SMT = machine([f"{n},{n + 16}" for n in range(16)], ["0-7,16-23", "8-15,24-31"])
POWER = machine([f"{8 * n}-{8 * n + 7}" for n in range(4)], ["0-15", "16-31"])
HYBRID = machine(
    [*(f"{2 * n}-{2 * n + 1}" for n in range(4)), *(str(n) for n in range(8, 20))],
    ["0-19"],
    core_types=(CoreType("p-core", mask("0-7"), 5200), CoreType("e-core", mask("8-19"), 3900)),
)
CLUSTERS = machine(
    [str(n) for n in range(8)],
    core_types=(
        CoreType("capacity-400", mask("0-3"), capacity=400),
        CoreType("capacity-800", mask("4-6"), capacity=800),
        CoreType("capacity-1024", mask("7"), capacity=1024),
    ),
)
RATED = machine(
    [str(n) for n in range(6)],
    core_types=(
        CoreType("capacity-960", mask("0-3"), capacity=960),
        CoreType("capacity-1024", mask("4-5"), capacity=1024),
    ),
)
# Two designs of slower cores, which are one speed.
MANY_SLOW = machine(
    [str(n) for n in range(7)],
    core_types=(
        CoreType("capacity-300", mask("0-2"), capacity=300),
        CoreType("capacity-310", mask("3-5"), capacity=310),
        CoreType("capacity-1024", mask("6"), capacity=1024),
    ),
)
# The first core has one reserved thread.
HALF_RESERVED = SMT._replace(kubelet=static()._replace(reserved_cpus=1), numa_nodes=())
# Two sockets whose memory the firmware interleaves.
ONE_NODE = machine([str(n) for n in range(16)], ["0-15"], sockets=(Group(0, mask("0-7")), Group(1, mask("8-15"))))
COUNTS_ONLY = Machine(online=mask("0-7"), cores=())


@pytest.mark.parametrize(
    ("the_machine", "cpus", "wanted", "threads", "pool", "because"),
    [
        (PLAIN, "0-7", AUTO, 8, "0-7", "8 physical cores"),
        (PLAIN, "0-5,8-9", AUTO, 6, "0-5", "6 physical cores on one NUMA node"),
        (PLAIN, "0-4,8-9", AUTO, 7, "0-4,8-9", "7 physical cores"),
        (PLAIN, "0-5,8-9", PlacementPolicy(numa="any"), 8, "0-5,8-9", "8 physical cores"),
        (PLAIN, "0-4,8-11", PlacementPolicy(numa="single"), 5, "0-4", "5 physical cores on one NUMA node"),
        (PLAIN, "0-3,8-11", PlacementPolicy(numa="single"), 4, "0-3", "4 physical cores on one NUMA node"),
        (SMT, "0-3,16-19", AUTO, 4, "0-3,16-19", "4 physical cores"),
        (SMT, "0-3,16-19", PlacementPolicy(all_threads=True), 8, "0-3,16-19", "8 CPUs"),
        # Half cores: one thread each all the same.
        (SMT, "0-3", AUTO, 4, "0-3", "4 physical cores"),
        # Cores are counted, not CPUs: three whole ones against two halves.
        (SMT, "0-2,16-18,8-9", AUTO, 5, "0-2,8-9,16-18", "5 physical cores"),
        (SMT, "0", AUTO, 1, "0", "1 physical core"),
        (POWER, "0-7", AUTO, 1, "0-7", "1 physical core"),
        (POWER, "0-31", AUTO, 4, "0-31", "4 physical cores"),
        (HYBRID, "0-19", AUTO, 12, "8-19", "12 physical cores of one type"),
        (HYBRID, "0-15", AUTO, 4, "0-7", "4 physical cores of one type"),
        (HYBRID, "0-15", PlacementPolicy(core_type="efficient"), 8, "8-15", "8 physical cores of one type"),
        (HYBRID, "0-19", PlacementPolicy(core_type="performance"), 4, "0-7", "4 physical cores of one type"),
        (HYBRID, "0-15", PlacementPolicy(core_type="any"), 12, "0-15", "12 physical cores"),
        # Of another kind than was asked for there is nothing: what there is, is used.
        (HYBRID, "8-9", PlacementPolicy(core_type="performance"), 2, "8-9", "2 physical cores of one type"),
        (CLUSTERS, "0-7", AUTO, 4, "4-7", "4 physical cores of the faster types"),
        # Capacities a few percent apart are one speed: there is no slower kind to leave.
        (RATED, "0-5", AUTO, 6, "0-5", "6 physical cores"),
        (CLUSTERS, "0-7", PlacementPolicy(core_type="performance"), 1, "7", "1 physical core of one type"),
        (CLUSTERS, "0-3", AUTO, 4, "0-3", "4 physical cores of one type"),
        (MANY_SLOW, "0-6", AUTO, 6, "0-5", "6 physical cores of the slower types"),
        (ONE_NODE, "0-5,8-9", AUTO, 6, "0-5", "6 physical cores on one socket"),
        (ONE_NODE, "0-4,8-10", AUTO, 8, "0-4,8-10", "8 physical cores"),
        # What is asked for is one memory, and there is one.
        (ONE_NODE, "0-5,8-9", PlacementPolicy(numa="single"), 8, "0-5,8-9", "8 physical cores"),
        (ONE_NODE, "0-5,8-9", PlacementPolicy(numa="any"), 8, "0-5,8-9", "8 physical cores"),
        (COUNTS_ONLY, "2-5", AUTO, 4, "2-5", "4 physical cores"),
        # A machine that could not be read at all.
        (Machine(online=0, cores=()), "2-5", AUTO, 4, "2-5", "4 physical cores"),
    ],
)
def test_a_pool_on_known_cpus(the_machine, cpus, wanted, threads, pool, because):
    found = place(the_machine, cpuset.count(mask(cpus)), wanted, mask(cpus))
    assert (found.threads, cpuset.format_list(found.cpus), found.because) == (threads, pool, because)


@pytest.mark.parametrize(
    ("the_machine", "count", "wanted", "threads", "units"),
    [
        (PLAIN, 8, AUTO, 8, 8),
        (PLAIN, 10, AUTO, 8, 10),
        (PLAIN, 11, AUTO, 11, 11),
        (PLAIN, 10, PlacementPolicy(numa="any"), 10, 10),
        (PLAIN, 16, PlacementPolicy(numa="single"), 8, 16),
        # Spread evenly, so that no node holds three quarters.
        (PLAIN._replace(kubelet=static(distribute_cpus_across_numa=1)), 10, AUTO, 10, 10),
        (PLAIN._replace(kubelet=static(prefer_align_cpus_by_uncorecache=1)), 10, AUTO, 8, 10),
        (SMT, 8, AUTO, 4, 4),
        (SMT._replace(kubelet=static(full_pcpus_only=1)), 8, AUTO, 4, 4),
        (SMT._replace(kubelet=static(distribute_cpus_across_cores=1)), 8, AUTO, 8, 8),
        (SMT, 7, AUTO, 4, 4),
        (SMT, 7, PlacementPolicy(all_threads=True), 7, 7),
        (POWER, 8, AUTO, 1, 1),
        (POWER, 9, AUTO, 2, 2),
        # Fifteen of sixteen cores are left on the first node; the reserved one is never given away.
        (SMT._replace(kubelet=static()._replace(reserved_cpus=mask("0,16"))), 32, AUTO, 15, 15),
        # The sibling of a reserved thread is no whole core: it comes last, so two CPUs are one core.
        (HALF_RESERVED, 2, AUTO, 1, 1),
        (HALF_RESERVED, 3, AUTO, 2, 2),
        (HALF_RESERVED, 31, AUTO, 16, 16),
        # The kubelet knows no kinds of core: the most that any one of them can be.
        (HYBRID, 4, AUTO, 4, 4),
        (HYBRID, 4, PlacementPolicy(core_type="performance"), 2, 2),
        (HYBRID, 20, PlacementPolicy(core_type="any"), 16, 16),
        (ONE_NODE, 10, AUTO, 8, 10),
        (ONE_NODE, 11, AUTO, 11, 11),
        (COUNTS_ONLY, 4, AUTO, 4, 4),
        # More than there is.
        (COUNTS_ONLY, 99, AUTO, 8, 8),
        (Machine(online=0, cores=()), 4, AUTO, 1, 1),
    ],
)
def test_a_pool_on_cpus_that_the_kubelet_has_not_chosen_yet(the_machine, count, wanted, threads, units):
    found = place(the_machine, count, wanted)
    assert (found.cpus, found.threads, found.units) == (None, threads, units)


def test_the_gpus_numa_node_decides_between_equal_ones():
    with_gpu = PLAIN._replace(gpus=(GPU("0000:3b:00.0", 1),))
    even, single = mask("0-3,8-11"), PlacementPolicy(numa="single", gpu=True)
    assert cpuset.format_list(place(with_gpu, 8, single, even).cpus) == "8-11"
    assert cpuset.format_list(place(with_gpu, 8, single._replace(gpu=False), even).cpus) == "0-3"
    assert cpuset.format_list(place(with_gpu, 9, single, even | mask("4")).cpus) == "0-4"
    units = pool_units(with_gpu, even, 4, gpu=True)
    assert (cpuset.format_list(sum(units)), memory_node(with_gpu, units)) == ("8-11", 1)


def test_workers_on_isolated_cpus_have_one_each():
    # The scheduler would leave all of them on the CPU that they were started on.
    half = PLAIN._replace(isolated=mask("2-3"))
    groups = affinity_groups(half, mask("0-3"), 4, "numa")
    assert [cpuset.format_list(group) for group in groups] == ["0-1", "2", "3"]


@pytest.mark.parametrize(
    ("threads", "groups"),
    [
        (4, ["0-5"] * 3),
        (6, ["0-5"] * 5),
        # More than the six that one NUMA node was cut to.
        (8, ["0-5"] * 5 + ["8-9"] * 2),
        (9, []),
    ],
)
def test_a_count_beyond_the_placement_goes_to_the_first_set_that_has_room(threads, groups):
    found = pin(PLAIN, mask("0-5,8-9"), threads, "numa", AUTO)
    assert [cpuset.format_list(group) for group in found] == groups


def test_siblings_are_used_only_when_the_cores_are_too_few():
    cpus = mask("0-3,16-19")
    assert [cpuset.format_list(g) for g in pin(SMT, cpus, 4, "core", AUTO)] == ["1,17", "2,18", "3,19"]
    assert [cpuset.format_list(g) for g in pin(SMT, cpus, 5, "core", AUTO)] == ["1", "2", "3", "16"]
    assert [cpuset.format_list(g) for g in pin(SMT, cpus, 4, "numa", AUTO, siblings=False)] == ["0-3"] * 3
    assert pin(SMT, cpus, 5, "numa", AUTO, siblings=False) == ()


@pytest.mark.parametrize(
    ("places", "node"), [(("0", "1"), 0), (("8",), 1), (("0", "8"), None), ((), None), (("40",), None)]
)
def test_memory_belongs_to_the_numa_node_that_holds_the_whole_pool(places, node):
    assert memory_node(PLAIN, [mask(place) for place in places]) == node


@pytest.mark.parametrize(
    ("cores", "domains", "workers", "threads", "because"),
    [
        (1, (), 1, 1, "1 core per instance"),
        (2, (), 1, 2, "2 cores per instance"),
        (3, (), 1, 3, "3 cores per instance"),
        (4, (), 1, 4, "4 cores per instance"),
        (5, (), 1, 4, "4 cores per instance; 1 of 5 cores idle"),
        (6, (), 2, 3, "3 cores per instance"),
        (7, (), 2, 3, "3 cores per instance; 1 of 7 cores idle"),
        (8, (), 2, 4, "4 cores per instance"),
        (10, (), 5, 2, "2 cores per instance"),
        (64, (8,) * 8, 16, 4, "4 cores per instance, none spans two L3 domains"),
        (12, (8, 8), 3, 4, "4 cores per instance, none spans two L3 domains"),
        (12, (6, 6), 4, 3, "3 cores per instance, none spans two L3 domains"),
        (4, (8, 8), 1, 4, "4 cores per instance"),
        (4, (1, 1, 1, 1), 4, 1, "1 core per instance, none spans two L3 domains"),
        # Three of five cores idle would be too many.
        (5, (2, 1, 1, 1), 5, 1, "1 core per instance, none spans two L3 domains"),
    ],
)
def test_instances_for_throughput(cores, domains, workers, threads, because):
    assert layout(cores, domains, "L3 domains")[:3] == (workers, threads, because)


def test_an_instance_keeps_to_one_cache_and_to_one_memory():
    assert cache_domains(PLAIN, PLAIN.online) == ([4, 4, 4, 4], "L3 domains")
    assert cache_domains(PLAIN, mask("0,4-5")) == ([1, 2], "L3 domains")
    assert cache_domains(SMT, mask("0-15")) == ([8, 8], "NUMA nodes")
    assert cache_domains(COUNTS_ONLY, mask("0-7")) == ([], "")
    one_cache = PLAIN._replace(l3_domains=(Group(0, mask("0-15")),))
    assert cache_domains(one_cache, PLAIN.online) == ([8, 8], "L3 domains")


machines = st.sampled_from([PLAIN, SMT, POWER, HYBRID, CLUSTERS, COUNTS_ONLY])
wishes = st.builds(
    PlacementPolicy,
    st.sampled_from(["auto", "single", "any"]),
    st.sampled_from(["auto", "performance", "efficient", "any"]),
    st.booleans(),
    st.booleans(),
)
kubelets = st.sets(
    st.sampled_from(["full_pcpus_only", "distribute_cpus_across_numa", "distribute_cpus_across_cores"])
).map(lambda names: static(**dict.fromkeys(names, 1)))


@given(machines, kubelets, wishes, st.integers(1, 40), st.integers(1, 40))
def test_more_exclusive_cpus_never_give_fewer_threads(the_machine, kubelet, wanted, one, other):
    the_machine = the_machine._replace(kubelet=kubelet)
    less, more = (place(the_machine, count, wanted).threads for count in sorted((one, other)))
    assert 1 <= less <= more


@given(machines, wishes, st.data())
def test_a_placement_lies_within_the_cpus_and_a_thread_has_a_place_of_its_own(the_machine, wanted, data):
    cpus = mask(",".join(map(str, data.draw(st.sets(st.sampled_from(cpuset.ids(the_machine.online)), min_size=1)))))
    found = place(the_machine, cpuset.count(cpus), wanted, cpus)
    assert found.cpus
    assert not found.cpus & ~cpus
    units = pool_units(the_machine, found.cpus, found.threads)
    assert len(units) == found.threads
    assert cpuset.count(sum(units)) == sum(map(cpuset.count, units))


@pytest.mark.parametrize(("threads", "pool", "memory"), [(6, 0b111111, 0), (8, 0xFF, None), (9, 0xFF, None)])
def test_more_threads_than_were_placed_are_shown_where_the_shims_tie_them(threads, pool, memory):
    nodes = (NUMANode(0, 0b111111), NUMANode(1, 0b11000000))
    kubelet = Kubelet(cpu_manager_policy="static")
    machine = Machine(0xFF, tuple(1 << cpu for cpu in range(8)), numa_nodes=nodes, kubelet=kubelet)
    found = plan(machine, Budget(whole_cpus=8, cpus=0xFF), Policy(intra_op=threads))
    assert (found.cap, found.cpus, found.memory_numa_node) == (6, pool, memory)
    assert found.affinity_groups == pin(machine, 0xFF, threads, "numa", PlacementPolicy())
