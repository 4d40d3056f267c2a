"""The rules of placement, each with where it comes from: docs/explanation/how-threads-are-placed.md begins so."""

from __future__ import annotations

from dataclasses import dataclass

ORT_THREADING = (
    "[ONNX Runtime, thread management](https://onnxruntime.ai/docs/performance/tune-performance/threading.html)"
)
OPENVINO_HINTS = (
    "[OpenVINO, performance hints and thread scheduling](https://docs.openvino.ai/2025/openvino-workflow/"
    "running-inference/inference-devices-and-modes/cpu-device/performance-hint-and-thread-scheduling.html)"
)
OPENVINO_STREAMS = "OpenVINO `src/plugins/intel_cpu/src/cpu_streams_calculation.cpp`"
IPEX = (
    "[Intel Extension for PyTorch, launch script](https://intel.github.io/intel-extension-for-pytorch/latest/"
    "tutorials/performance_tuning/launch_script.html)"
)
ZENDNN = "[AMD ZenDNN user guide, NUMA](https://docs.amd.com/r/en-US/57300-ZenDNN-user-guide)"
KUBERNETES = "[Kubernetes, CPU management policies](https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/)"
RESOURCE_MANAGERS = (
    "[Kubernetes, node resource managers](https://kubernetes.io/docs/concepts/policy/node-resource-managers/)"
)
_MEASURED = "Raddle's own measurements, `python -m load table`"
KUBELET_CODE = "Kubernetes `pkg/kubelet/cm/cpumanager/cpu_assignment.go`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: its short name in the tables, what it says, and the sources that say the same or why."""

    name: str
    text: str
    sources: tuple[str, ...]


RULES: tuple[Rule, ...] = (
    Rule(
        name="limit",
        text="A limit of q CPUs gets q threads: rounded up for Latency, down for Throughput, and one below one CPU. "
        "More threads than the quota pays for are stopped together for the rest of the period.",
        sources=(
            "Linux `Documentation/scheduler/sched-bwc.rst`",
            "[onnxruntime#29510](https://github.com/microsoft/onnxruntime/issues/29510)",
        ),
    ),
    Rule(
        name="cores",
        text="Never more threads than physical cores: SMT siblings stay idle unless the policy says `smt: AllThreads`. "
        "Two threads of a core share what matrix kernels need.",
        sources=(
            ORT_THREADING + " (one thread a physical core)",
            OPENVINO_HINTS + " (hyper-threading off for latency)",
        ),
    ),
    Rule(
        name="one-numa-node",
        text="Without a limit Latency stops at the cores of one NUMA node; `numa: Any` and `budget.source: Node` lift "
        "that. Under a limit on shared CPUs nothing is tied, so the cut would only take threads away: there "
        "`numa: SingleNUMANode` alone cuts.",
        sources=(OPENVINO_HINTS + " (latency: the cores of one NUMA node)", ORT_THREADING + " (NUMA)"),
    ),
    Rule(
        name="whole-node",
        text="Throughput may use every NUMA node.",
        sources=(IPEX + " (throughput mode: an instance a NUMA node, all physical cores)",),
    ),
    Rule(
        name="exclusive",
        text="CPUs are exclusive where the pod is Guaranteed, asks for whole CPUs, and the node's CPU manager is known "
        "to be `static`. Anything else counts as shared.",
        sources=(RESOURCE_MANAGERS,),
    ),
    Rule(
        name="whole-cores",
        text="The kubelet takes whole cores first, so n exclusive CPUs are n / (threads a core) cores, rounded up: an "
        "odd CPU is half a core. The option `distribute-cpus-across-cores` takes one CPU per core instead. "
        "Where cores differ, the plan has the most that the set can be, and the running container cuts it.",
        sources=(KUBELET_CODE + " (takeFullCores, then takeRemainingCPUs)", KUBERNETES),
    ),
    Rule(
        name="three-quarters",
        text="Exclusive CPUs are cut to one NUMA node only where that holds three quarters of their cores or more: "
        "fewer would leave too much idle. `SingleNUMANode` always cuts, `Any` never. Where one NUMA node is told for "
        "several sockets, the socket is the border.",
        sources=("Raddle's own choice, not measured on such machines",),
    ),
    Rule(
        name="packed",
        text="The kubelet fills one NUMA node before it takes from the next. With `distribute-cpus-across-numa` it "
        "spreads evenly over the nodes that it needs, so that none holds three quarters.",
        sources=(KUBERNETES,),
    ),
    Rule(
        name="one-type",
        text="One pool never spans kinds of core unless `coreType: Any`: every step waits for the slowest thread. The "
        "P-cores are taken; the E-cores where there are more than twice as many, or with `coreType: Efficient`.",
        sources=(
            OPENVINO_HINTS
            + " (core types are not mixed within a stream; P-cores unless there are twice as many E-cores)",
            "Intel Extension for PyTorch `intel_extension_for_pytorch/cpu/launch` (P-cores only)",
        ),
    ),
    Rule(
        name="all-but-slowest",
        text="Where the kernel gives capacities (Arm), a machine has three or four kinds in ones and twos: all but the "
        "slowest are taken; capacities of at least seven eighths of a kind's highest are one speed. `coreType: "
        "Performance` takes the fastest kind alone.",
        sources=("Linux `Documentation/scheduler/sched-capacity.rst`",),
    ),
    Rule(
        name="order",
        text="CPUs are taken by NUMA node (the one with the most of the set first), then L3 domain (the same), then "
        "lowest CPU. All first threads come before any second thread.",
        sources=(
            ZENDNN + " (instances by the cores that share an L3)",
            KUBERNETES + " (`prefer-align-cpus-by-uncorecache`)",
        ),
    ),
    Rule(
        name="gpu-node",
        text="Between NUMA nodes that hold as many cores, the one that the container's GPU is on comes first, "
        "then the lowest. A GPU session never spins.",
        sources=(
            "Linux `Documentation/ABI/testing/sysfs-bus-pci` (numa_node)",
            "[Kubernetes, topology manager](https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/)",
        ),
    ),
    Rule(
        name="tied",
        text="Threads are tied to CPUs only where these are exclusive, for one stream of two threads or more. The "
        "caller never is. A worker may use the container's CPUs on its NUMA node; with `affinity: PerCore` one core.",
        sources=(
            ORT_THREADING + " (set intra-op thread affinity)",
            OPENVINO_HINTS + " (pinning hurts beside other work)",
        ),
    ),
    Rule(
        name="isolated",
        text="For shared containers CPUs don't count that `isolcpus` took from the scheduler, since the kernel moves "
        "nothing there by itself, nor those that the static CPU manager reserves for the system. In an exclusive set "
        "each worker on an isolated CPU gets a core of its own: with a common mask all would stay on one CPU.",
        sources=("Linux `Documentation/admin-guide/kernel-parameters.txt` (isolcpus)", RESOURCE_MANAGERS),
    ),
    Rule(
        name="memory-only",
        text="NUMA nodes without CPUs (high-bandwidth memory, CXL, GPU memory) are never chosen.",
        sources=("Linux `Documentation/mm/numa.rst`",),
    ),
    Rule(
        name="unknown",
        text="What the kernel does not tell is not guessed: without NUMA nodes there is one memory, without L3 domains "
        "the NUMA node stands for them, and an Arm cluster that is numbered as a package is no border.",
        sources=("Linux `Documentation/admin-guide/cputopology.rst`",),
    ),
    Rule(
        name="streams",
        text="Workers and sessions, and for Throughput the runs at the same time, share the threads. Two streams "
        "never spin: one would burn what the other needs.",
        sources=(OPENVINO_HINTS + " (threads divided by streams)",),
    ),
    Rule(
        name="spin",
        text="Spinning is bounded to 50 µs where every runnable thread has a CPU, and off otherwise. On exclusive "
        "CPUs one stream for Latency spins without end: nobody else can use them, and a sleeping worker is late. "
        "OpenMP, BLAS and processes that no shim reaches spin without a bound: on shared CPUs they have for Latency "
        "one thread less than the limit's whole CPUs, without a limit four or the request, and never more than others.",
        sources=(ORT_THREADING + " (thread spinning behavior)", _MEASURED),
    ),
    Rule(
        name="load",
        text="Where `load.runTime` is stated, one pool that serves one request at a time for Latency has what a model "
        "of CPU time under the limit expects the lowest p99 of. For ONNX Runtime that may be more threads than the "
        "limit has CPUs, up to four.",
        sources=("Linux `Documentation/scheduler/sched-bwc.rst`", _MEASURED),
    ),
    Rule(
        name="layout",
        text="Advice for Throughput: instances × threads. An instance stays within one L3 domain and one NUMA node. Of "
        "four, three and two threads it has what leaves the fewest cores idle, the larger of two that leave as many. "
        "Each kind of core has instances of its own, + between them; none mixes two.",
        sources=(
            OPENVINO_STREAMS + " (4 where the cores divide by it)",
            IPEX + " (latency mode: 4 cores an instance)",
            ZENDNN,
        ),
    ),
)
NAMES = tuple(rule.name for rule in RULES)
