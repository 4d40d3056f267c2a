"""The rows of the placement table, machine by machine; `cases` says what a row is."""

from __future__ import annotations

from typing import Any

from specification.cases import FREE, Case, Table, exclusive, limit, on

THROUGHPUT: dict[str, Any] = {"objective": "Throughput"}
ALL_THREADS: dict[str, Any] = {"smt": "AllThreads"}
ONE_NODE: dict[str, Any] = {"numa": "SingleNUMANode"}
ANY_NODE: dict[str, Any] = {"numa": "Any"}
PER_CORE: dict[str, Any] = {"affinity": "PerCore"}


def _small(table: Table) -> None:
    row = table.of("single")
    row(FREE, 1, "There is one core.", "cores")
    row(limit(0.5), 1, "Half a CPU pays for one thread, and for no spinning.", "limit", "spin", spinning="never")
    row(limit(4), 1, "The node has less than the limit.", "cores")
    row(exclusive(1), 1, "One thread has nobody to be kept apart from.", "exclusive", "tied")

    row = table.of("laptop")
    row(FREE, 2, "Two cores; their siblings stay idle.", "cores")
    row(FREE, 4, "Asked for.", "cores", **ALL_THREADS)
    row(limit(0.5), 1, "Two threads on half a CPU would be stopped in every period.", "limit", spinning="never")
    row(limit(1), 1, "One CPU, one thread.", "limit")
    row(limit(1.5), 2, "A lone request is faster on two threads than on one, and seldom uses the period up.", "limit")
    row(
        limit(1.5),
        1,
        "Under load two threads would wait for the quota.",
        "limit",
        "layout",
        layout="1 × 1",
        **THROUGHPUT,
    )
    row(limit(2), 2, "The quota and the cores agree.", "limit", "cores")
    row(limit(4), 2, "Four CPUs are two cores here.", "cores")
    row(limit(4), 4, "Asked for.", "cores", **ALL_THREADS)
    row(
        limit(8),
        2,
        "Four callers and a worker are five runnable threads on four CPUs: the limit is more than the node has.",
        "cores",
        "spin",
        spinning="never",
        concurrent_runs=4,
    )
    row(
        limit(2).workers(2),
        1,
        "Two processes share two cores.",
        "streams",
        "layout",
        spinning="never",
        layout="1 × 2",
        **THROUGHPUT,
    )

    row = table.of("cloud-4")
    row(FREE, 2, "Four vCPUs are two cores.", "cores")
    row(limit(3), 2, "The third thread would share a core.", "cores")
    row(
        limit(4),
        1,
        "Two callers share two cores.",
        "streams",
        "cores",
        spinning="never",
        layout="1 × 2",
        concurrent_runs=2,
        **THROUGHPUT,
    )
    row(exclusive(2), 1, "Two CPUs are one core.", "whole-cores")
    row(exclusive(2), 2, "Asked for.", "whole-cores", "tied", tied="numa", **ALL_THREADS)
    row(exclusive(3), 2, "A core and half of the other one.", "whole-cores", "tied", tied="numa")
    row(
        exclusive(3, "full-pcpus-only"),
        2,
        "The kubelet refuses the pod (SMTAlignmentError); the plan is as without the option.",
        "whole-cores",
        tied="numa",
    )
    row(on("2-3"), 1, "One core.", "whole-cores", pool="2-3", memory=0)
    row(
        on("1-3"), 2, "Half of core 0 and the whole of core 1.", "tied", tied="numa", pool="1-3", groups="1-3", memory=0
    )
    row(
        on("1-3"),
        3,
        "First threads first: 1 and 2, then 2's sibling.",
        "order",
        tied="core",
        pool="1-3",
        groups="2; 3",
        memory=0,
        **ALL_THREADS,
        **PER_CORE,
    )

    row = table.of("bare")
    row(FREE, 8, "Eight CPUs without siblings count as eight cores.", "cores", "unknown")
    row(limit(4), 4, "The limit is narrower.", "limit")
    row(
        FREE,
        8,
        "Instances of four, as if there were one memory and one cache.",
        "layout",
        "unknown",
        layout="2 × 4",
        **THROUGHPUT,
    )
    row(exclusive(4), 4, "Four cores.", "exclusive", "tied", tied="numa")
    row(
        on("2-5"),
        4,
        "No NUMA node is known, so each worker may use the whole set.",
        "tied",
        "unknown",
        tied="numa",
        pool="2-5",
        groups="2-5 x3",
    )
    row(
        on("2-5"),
        4,
        "Core by core; CPU 2 is left to the caller.",
        "order",
        tied="core",
        pool="2-5",
        groups="3; 4; 5",
        **PER_CORE,
    )


def _amd(table: Table) -> None:
    row = table.of("epyc-64")
    row(limit(1), 4, "Runs of 33 ms pay for it out of the limit's idle time.", "load", run_time_us=33_000)
    row(limit(4), 1, "Four threads take longer to meet than they save.", "load", run_time_us=1_000)
    row(FREE, 64, "The one NUMA node has 64 cores.", "one-numa-node", "cores")
    row(
        FREE,
        64,
        "Four cores an instance, two instances an L3 domain of eight.",
        "layout",
        layout="16 × 4",
        **THROUGHPUT,
    )
    row(
        FREE.workers(16),
        4,
        "What the advice comes to: an instance has four cores.",
        "streams",
        spinning="never",
        layout="16 × 4",
        **THROUGHPUT,
    )
    row(limit(0.5), 1, "Below one CPU.", "limit", spinning="never")
    row(limit(1), 1, "One CPU.", "limit")
    row(limit(2), 2, "Two CPUs.", "limit")
    row(limit(8), 8, "The limit is narrower than the node.", "limit")
    row(limit(32), 32, "Half of the node.", "limit")
    row(limit(66), 64, "Two more than there are cores.", "cores")
    row(limit(128), 64, "The whole node: its siblings stay idle.", "cores")
    row(limit(8), 8, "Two instances of four.", "layout", layout="2 × 4", **THROUGHPUT)
    row(
        limit(8),
        2,
        "Four callers share eight threads.",
        "streams",
        "layout",
        spinning="never",
        layout="2 × 4",
        concurrent_runs=4,
        **THROUGHPUT,
    )
    row(exclusive(16), 8, "Eight whole cores.", "whole-cores", "tied", tied="numa")
    row(exclusive(15), 8, "Seven cores and half of another.", "whole-cores", tied="numa")
    row(exclusive(16), 16, "Asked for.", "whole-cores", tied="numa", **ALL_THREADS)
    row(
        exclusive(16, "distribute-cpus-across-cores"),
        16,
        "One CPU on each of sixteen cores.",
        "whole-cores",
        tied="numa",
    )
    row(
        exclusive(16).workers(2),
        4,
        "Two processes share eight cores; which has which is theirs to say.",
        "streams",
        "tied",
        spinning="never",
    )
    row(on("0-7,64-71"), 8, "One L3 domain.", "tied", tied="numa", pool="0-7,64-71", groups="0-7,64-71 x7", memory=0)
    row(
        on("0-7,64-71"),
        4,
        "Two sessions share eight cores.",
        "streams",
        spinning="never",
        pool="0-7,64-71",
        memory=0,
        sessions=2,
    )
    row(
        on("0-7"),
        8,
        "Eight half cores: other containers have the siblings.",
        "whole-cores",
        tied="numa",
        pool="0-7",
        groups="0-7 x7",
        memory=0,
    )
    row(
        on("4-11,68-75"),
        8,
        "Four cores of each of two L3 domains.",
        "order",
        tied="core",
        pool="4-11,68-75",
        groups="5,69; 6,70; 7,71; 8,72; 9,73; 10,74; 11,75",
        memory=0,
        **PER_CORE,
    )
    row(
        on("6-13,70-77"),
        8,
        "The L3 domain that holds six of the cores comes first; core 8 is left to the caller.",
        "order",
        tied="core",
        pool="6-13,70-77",
        groups="9,73; 10,74; 11,75; 12,76; 13,77; 6,70; 7,71",
        memory=0,
        **PER_CORE,
    )
    row(
        on("0-15,64-79"),
        16,
        "Two L3 domains of eight cores, two instances in each.",
        "layout",
        tied="numa",
        pool="0-15,64-79",
        groups="0-15,64-79 x15",
        memory=0,
        layout="4 × 4",
        **THROUGHPUT,
    )

    row = table.of("epyc-2s-nps4")
    row(FREE, 16, "A NUMA node has sixteen cores.", "one-numa-node")
    row(FREE, 128, "All cores.", "one-numa-node", budget_source="Node")
    row(FREE, 128, "All nodes; four cores an instance.", "whole-node", "layout", layout="32 × 4", **THROUGHPUT)
    row(limit(8), 8, "Half of a NUMA node.", "limit")
    row(limit(18), 18, "Two more than a NUMA node has: nothing ties them to one.", "limit")
    row(limit(18), 16, "Asked for.", "one-numa-node", **ONE_NODE)
    row(limit(24), 24, "Six instances of four.", "whole-node", "layout", layout="6 × 4", **THROUGHPUT)
    row(limit(256), 128, "The whole node: its siblings stay idle.", "cores")
    row(limit(256), 128, "The whole node.", "whole-node", "cores", layout="32 × 4", **THROUGHPUT)
    row(exclusive(32), 16, "A NUMA node.", "whole-cores", "packed", tied="numa")
    row(exclusive(36), 16, "Eighteen cores, sixteen of them on one NUMA node.", "three-quarters", "packed", tied="numa")
    row(exclusive(44), 22, "Sixteen of twenty-two are fewer than three quarters.", "three-quarters", tied="numa")
    row(exclusive(44), 16, "Asked for.", "three-quarters", tied="numa", **ONE_NODE)
    row(exclusive(36), 18, "Asked for.", "three-quarters", tied="numa", **ANY_NODE)
    row(
        exclusive(36, "distribute-cpus-across-numa"), 18, "Nine cores on each of two NUMA nodes.", "packed", tied="numa"
    )
    row(
        on("0-11,16-19,128-139,144-147"),
        12,
        "Three to one: twelve of sixteen cores are three quarters.",
        "three-quarters",
        tied="numa",
        pool="0-11,128-139",
        groups="0-11,128-139 x11",
        memory=0,
    )
    row(
        on("8-23,136-151"),
        16,
        "One to one: half would stay idle.",
        "three-quarters",
        "tied",
        tied="numa",
        pool="8-23,136-151",
        groups="8-15,136-143 x7; 16-23,144-151 x8",
    )
    row(
        on("8-23,136-151"),
        8,
        "Asked for; of two equal nodes the lower.",
        "three-quarters",
        tied="numa",
        pool="8-15,136-143",
        groups="8-15,136-143 x7",
        memory=0,
        **ONE_NODE,
    )
    row(
        on("0-16,128-143"),
        16,
        "The odd CPU is half a core on another node.",
        "three-quarters",
        tied="numa",
        pool="0-15,128-143",
        groups="0-15,128-143 x15",
        memory=0,
    )


def _intel(table: Table) -> None:
    row = table.of("icelake-2s")
    row(FREE, 32, "The cores of one socket.", "one-numa-node")
    row(FREE, 64, "The CPUs of one socket.", "one-numa-node", "cores", **ALL_THREADS)
    row(FREE, 64, "Asked for.", "one-numa-node", **ANY_NODE)
    row(FREE, 64, "Both sockets.", "whole-node", "layout", layout="16 × 4", **THROUGHPUT)
    row(
        FREE.workers(2),
        32,
        "A process a socket, if the launcher puts it there.",
        "streams",
        spinning="never",
        layout="16 × 4",
        **THROUGHPUT,
    )
    row(limit(16), 16, "Half of a NUMA node.", "limit")
    row(limit(34), 34, "Two more than a NUMA node has.", "limit")
    row(limit(128), 64, "The whole node.", "cores")
    row(limit(128), 64, "The whole node.", "whole-node", "cores", layout="16 × 4", **THROUGHPUT)
    row(
        exclusive(8).under("unknown"),
        8,
        "Nobody knows how this node's kubelet hands out CPUs, so they are taken for shared ones under a limit.",
        "exclusive",
        "limit",
    )
    row(exclusive(8).under("none"), 8, "Without the static policy there are no exclusive CPUs.", "exclusive", "limit")
    row(exclusive(8), 4, "Four whole cores.", "whole-cores", tied="numa")
    row(exclusive(7), 4, "Three cores and half of another.", "whole-cores", tied="numa")
    row(exclusive(80), 32, "Forty cores, thirty-two of them on one node.", "three-quarters", "packed", tied="numa")
    row(exclusive(80, "distribute-cpus-across-numa"), 40, "Twenty cores on each node.", "packed", tied="numa")
    row(exclusive(96), 48, "Thirty-two of forty-eight are fewer than three quarters.", "three-quarters", tied="numa")
    row(exclusive(96), 32, "Asked for.", "three-quarters", tied="numa", **ONE_NODE)
    row(exclusive(128), 64, "The whole machine.", "three-quarters", tied="numa")

    row = table.of("sapphire-rapids-snc4")
    row(FREE, 14, "A NUMA node is a quarter of a socket.", "one-numa-node")
    row(limit(7), 7, "Half of a NUMA node.", "limit")
    row(limit(16), 16, "Two more than a NUMA node has.", "limit")
    row(
        FREE,
        112,
        "Fourteen cores divide by two, not by three or four. The L3 is the socket's, but an instance must not cross "
        "the memory nodes inside it.",
        "layout",
        "whole-node",
        layout="56 × 2",
        **THROUGHPUT,
    )
    row(exclusive(28), 14, "A NUMA node.", "packed", tied="numa")
    row(exclusive(32), 14, "Fourteen of sixteen cores.", "three-quarters", "packed", tied="numa")
    row(exclusive(38), 19, "Fourteen of nineteen are fewer than three quarters.", "three-quarters", tied="numa")
    row(
        on("7-20,119-132"),
        14,
        "Two memory nodes under one L3: workers stay on theirs.",
        "tied",
        tied="numa",
        pool="7-20,119-132",
        groups="7-13,119-125 x6; 14-20,126-132 x7",
    )

    row = table.of("hybrid-6p8e")
    row(FREE, 6, "The P-cores.", "one-type", "cores")
    row(FREE, 8, "Asked for.", "one-type", core_type="Efficient")
    row(FREE, 14, "Asked for.", "one-type", core_type="Any")
    row(
        FREE,
        6,
        "Six P-cores divide by three, eight E-cores by four.",
        "layout",
        "one-type",
        layout="2 × 3 + 2 × 4",
        **THROUGHPUT,
    )
    row(limit(4), 4, "The limit is narrower than the P-cores.", "limit")
    row(limit(8), 6, "Eight threads would need E-cores.", "one-type")
    row(limit(12), 12, "Asked for.", "one-type", core_type="Any")
    row(
        exclusive(4),
        4,
        "Four E-cores are the most that it can be; two P-cores in the container cut it to two.",
        "whole-cores",
        "one-type",
        tied="numa",
    )
    row(
        exclusive(16),
        8,
        "Fewer CPUs may be eight E-cores, and a wider budget never plans fewer threads; in the container it is cut.",
        "one-type",
        tied="numa",
    )
    row(
        on("0-7,12-19"),
        4,
        "Four P-cores; eight E-cores are not more than twice as many.",
        "one-type",
        tied="numa",
        pool="0-7",
        groups="0-7 x3",
        memory=0,
    )
    row(on("0-7"), 4, "Four P-cores.", "whole-cores", tied="numa", pool="0-7", groups="0-7 x3", memory=0)
    row(
        on("8-15"),
        2,
        "Two P-cores; the four E-cores beside them stay idle.",
        "one-type",
        tied="numa",
        pool="8-11",
        groups="8-11",
        memory=0,
    )
    row(
        on("8-15"),
        4,
        "Asked for.",
        "one-type",
        tied="numa",
        pool="12-15",
        groups="12-15 x3",
        memory=0,
        core_type="Efficient",
    )
    row(on("8-15"), 6, "Asked for.", "one-type", tied="numa", pool="8-15", groups="8-15 x5", memory=0, core_type="Any")
    row(
        on("10-19"),
        8,
        "Eight E-cores beside one P-core.",
        "one-type",
        tied="numa",
        pool="12-19",
        groups="12-19 x7",
        memory=0,
    )
    row(on("12-19"), 8, "There are only E-cores.", "one-type", tied="numa", pool="12-19", groups="12-19 x7", memory=0)

    row = table.of("knl")
    row(FREE, 16, "A quarter of the chip is a NUMA node.", "one-numa-node", "memory-only")
    row(
        FREE,
        64,
        "Without an L3 the NUMA node of sixteen cores stands for it.",
        "layout",
        "unknown",
        layout="16 × 4",
        **THROUGHPUT,
    )
    row(exclusive(64), 16, "Sixteen cores with four threads.", "whole-cores", tied="numa")
    row(
        on("0-15,64-79,128-143,192-207"),
        16,
        "NUMA node 0; its high-bandwidth memory is node 4, which only the program can ask for.",
        "memory-only",
        tied="numa",
        pool="0-15,64-79,128-143,192-207",
        groups="0-15,64-79,128-143,192-207 x15",
        memory=0,
    )


def _gpu(table: Table) -> None:
    row = table.of("gpu-2s")
    odd, even = "1,3,5,7,9,11,13,15", "0,2,4,6,8,10,12,14"
    row(
        FREE.gpu(),
        24,
        "The count is planned as without a GPU, for what falls back to the CPU.",
        "one-numa-node",
        "gpu-node",
        spinning="never",
    )
    row(exclusive(16).gpu(), 8, "Eight cores.", "whole-cores", "gpu-node", spinning="never", tied="numa")
    row(
        on("0-15").gpu(),
        16,
        "Eight half cores on each node: the GPU's comes first.",
        "gpu-node",
        "order",
        spinning="never",
        tied="numa",
        pool="0-15",
        groups=f"{odd} x7; {even} x8",
    )
    row(
        on("0-15"),
        16,
        "Without a GPU the lower node comes first.",
        "order",
        tied="numa",
        pool="0-15",
        groups=f"{even} x7; {odd} x8",
    )
    row(
        on("0-15").gpu(),
        8,
        "Asked for: the GPU's node.",
        "gpu-node",
        spinning="never",
        tied="numa",
        pool=odd,
        groups=f"{odd} x7",
        memory=1,
        **ONE_NODE,
    )
    row(
        on("0-15"),
        8,
        "Asked for: the lower node.",
        "order",
        tied="numa",
        pool=even,
        groups=f"{even} x7",
        memory=0,
        **ONE_NODE,
    )
    row(
        on("0-4,6,8,10").gpu(),
        6,
        "Six of eight cores are on node 0: more CPUs are worth more than the GPU's side.",
        "three-quarters",
        "gpu-node",
        spinning="never",
        tied="numa",
        pool="0,2,4,6,8,10",
        groups="0,2,4,6,8,10 x5",
        memory=0,
    )


def _arm(table: Table) -> None:
    row = table.of("graviton-64")
    row(FREE, 64, "One NUMA node, no siblings.", "one-numa-node")
    row(FREE, 64, "Four cores an instance.", "layout", layout="16 × 4", **THROUGHPUT)
    row(limit(8), 8, "The limit is narrower.", "limit")
    row(exclusive(7), 7, "Without SMT every CPU is a core.", "whole-cores", tied="numa")
    row(on("8-15"), 8, "Eight cores.", "tied", tied="numa", pool="8-15", groups="8-15 x7", memory=0)

    row = table.of("altra-2s")
    row(FREE, 80, "A socket.", "one-numa-node")
    row(
        FREE,
        160,
        "Without an L3 the NUMA node of eighty cores stands for it.",
        "layout",
        "unknown",
        layout="40 × 4",
        **THROUGHPUT,
    )
    row(limit(82), 82, "Two more than a NUMA node has.", "limit")
    row(exclusive(100), 80, "Eighty of a hundred cores are on one node.", "three-quarters", "packed", tied="numa")
    row(
        exclusive(120),
        120,
        "Eighty of a hundred and twenty are fewer than three quarters.",
        "three-quarters",
        tied="numa",
    )
    row(
        on("72-87"),
        16,
        "Eight cores on each socket.",
        "three-quarters",
        tied="numa",
        pool="72-87",
        groups="72-79 x7; 80-87 x8",
    )

    row = table.of("arm-clusters")
    row(FREE, 16, "Clusters are no sockets: there is one memory.", "unknown")
    row(limit(8), 8, "Two clusters' worth.", "limit", "unknown")
    row(FREE, 16, "Four cores an instance.", "layout", layout="4 × 4", **THROUGHPUT)
    row(
        on("2-9"),
        8,
        "Three clusters, one memory.",
        "unknown",
        "tied",
        tied="numa",
        pool="2-9",
        groups="2-9 x7",
        memory=0,
    )

    row = table.of("dynamiq")
    row(FREE, 5, "All but the three small cores.", "all-but-slowest")
    row(FREE, 3, "Asked for.", "one-type", core_type="Efficient")
    row(FREE, 1, "Asked for: there is one core of the fastest kind.", "all-but-slowest", core_type="Performance")
    row(FREE, 8, "Asked for.", "one-type", core_type="Any")
    row(limit(4), 4, "The limit is narrower.", "limit")
    row(limit(8), 5, "More would need the small cores.", "all-but-slowest")
    row(FREE, 5, "One fast core idle, not two in instances of three.", "layout", layout="1 × 4 + 1 × 3", **THROUGHPUT)
    row(
        on("0-7"),
        5,
        "The small cores stay idle.",
        "all-but-slowest",
        tied="numa",
        pool="3-7",
        groups="3-7 x4",
        memory=0,
    )
    row(on("1-4"), 2, "Two middle cores.", "all-but-slowest", tied="numa", pool="3-4", groups="3-4", memory=0)
    row(
        on("0-2"),
        3,
        "There are only small cores.",
        "all-but-slowest",
        tied="numa",
        pool="0-2",
        groups="0-2 x2",
        memory=0,
    )


def _power(table: Table) -> None:
    row = table.of("power9")
    row(FREE, 16, "A socket's cores.", "one-numa-node", "memory-only")
    row(FREE, 64, "A socket's CPUs.", "cores", **ALL_THREADS)
    row(FREE, 32, "Two cores share an L3.", "layout", "whole-node", layout="16 × 2", **THROUGHPUT)
    row(limit(8), 8, "Half of a NUMA node.", "limit")
    row(limit(18), 18, "Two more than a NUMA node has.", "limit")
    row(exclusive(16), 4, "Four cores with four threads.", "whole-cores", tied="numa")
    row(exclusive(18), 5, "Four cores and half of another.", "whole-cores", tied="numa")
    row(exclusive(16), 16, "Asked for.", "whole-cores", tied="numa", **ALL_THREADS)
    row(on("0-15"), 4, "Four cores.", "tied", tied="numa", pool="0-15", groups="0-15 x3", memory=0)
    row(
        on("64-79"),
        4,
        "Four cores of the other socket, whose memory node is 8.",
        "tied",
        tied="numa",
        pool="64-79",
        groups="64-79 x3",
        memory=8,
    )
    row(
        on("0-15"),
        4,
        "A core each.",
        "order",
        tied="core",
        pool="0-15",
        groups="4-7; 8-11; 12-15",
        memory=0,
        **PER_CORE,
    )
    row(
        on("0-7"),
        8,
        "All first threads, then all second ones, and so on.",
        "order",
        tied="core",
        pool="0-7",
        groups="4; 1; 5; 2; 6; 3; 7",
        memory=0,
        **ALL_THREADS,
        **PER_CORE,
    )

    row = table.of("power10")
    row(FREE, 12, "Twelve cores.", "cores")
    row(limit(20), 12, "Twenty CPUs are more than there are cores.", "cores")
    row(FREE, 12, "Each core has an L3 of its own.", "layout", layout="12 × 1", **THROUGHPUT)
    row(exclusive(8), 1, "Eight CPUs are one core.", "whole-cores")
    row(exclusive(24), 3, "Three cores.", "whole-cores", tied="numa")
    row(exclusive(24), 24, "Asked for.", "whole-cores", tied="numa", **ALL_THREADS)


def _odd(table: Table) -> None:
    row = table.of("isolated")
    row(FREE, 7, "Sixteen cores less eight isolated and one reserved.", "isolated")
    row(limit(8), 7, "The limit is more than what is left.", "isolated")
    row(exclusive(8), 4, "Four whole cores.", "whole-cores", tied="numa")
    row(
        on("1-4,17-20"),
        4,
        "Four cores that the kernel balances.",
        "tied",
        tied="numa",
        pool="1-4,17-20",
        groups="1-4,17-20 x3",
        memory=0,
    )
    row(
        on("8-11,24-27"),
        4,
        "Isolated CPUs: a common mask would leave all workers on one CPU.",
        "isolated",
        tied="numa",
        pool="8-11,24-27",
        groups="9,25; 10,26; 11,27",
        memory=0,
    )

    row = table.of("half-cores")
    row(FREE, 16, "Sixteen cores, eight of them with one thread.", "cores")
    row(exclusive(8), 8, "Eight cores with one thread are the most that it can be.", "whole-cores", tied="numa")
    row(
        on("0-3,16-19"),
        4,
        "Four whole cores.",
        "whole-cores",
        tied="numa",
        pool="0-3,16-19",
        groups="0-3,16-19 x3",
        memory=0,
    )
    row(
        on("8-15"),
        8,
        "Eight cores with one thread.",
        "whole-cores",
        tied="numa",
        pool="8-15",
        groups="8-15 x7",
        memory=0,
    )
    row(
        on("6-9,22-23"),
        4,
        "Two whole cores and two with one thread.",
        "order",
        tied="core",
        pool="6-9,22-23",
        groups="7,23; 8; 9",
        memory=0,
        **PER_CORE,
    )
    row(
        on("6-9,22-23"),
        6,
        "First threads before second ones.",
        "order",
        tied="core",
        pool="6-9,22-23",
        groups="7; 8; 9; 22; 23",
        memory=0,
        **ALL_THREADS,
        **PER_CORE,
    )

    row = table.of("cpus-1024")
    row(FREE, 64, "A socket's cores.", "one-numa-node")
    row(FREE, 512, "All cores.", "whole-node", "layout", layout="128 × 4", **THROUGHPUT)
    row(limit(66), 66, "Two more than a NUMA node has.", "limit")
    row(limit(1024), 512, "The whole node.", "cores")
    row(limit(1024), 512, "The whole node.", "whole-node", "cores", layout="128 × 4", **THROUGHPUT)
    row(exclusive(128), 64, "A NUMA node.", "whole-cores", tied="numa")
    row(exclusive(1024), 512, "The whole machine.", "three-quarters", tied="numa")
    row(
        on("0-31,512-543"),
        32,
        "Half of a NUMA node, four L3 domains.",
        "tied",
        tied="numa",
        pool="0-31,512-543",
        groups="0-31,512-543 x31",
        memory=0,
    )


def _all() -> tuple[Case, ...]:
    table = Table()
    for part in (_small, _amd, _intel, _gpu, _arm, _power, _odd):
        part(table)
    return tuple(table.rows)


CASES = _all()
