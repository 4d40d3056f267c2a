"""What holds for every plan, whatever the machine, the budget and the policy: design §5's properties and some more.

`violations` yields a sentence for each thing that does not hold. The property tests and `make fuzz` share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, isfinite

from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.placement import place
from raddle.cpus.topology import Machine
from raddle.planning import wire
from raddle.planning.capacity import placement_policy
from raddle.planning.planner import MOST_OVER_LIMIT, Budget, Plan, plan
from raddle.planning.policy import Policy
from raddle.process import current, resolution
from support.placement import worker_invariants
from support.placement.reference import Picture, as_set, slowest
from support.placement.worker_invariants import places, union


def violations(
    machine: Machine | None, budget: Budget, policy: Policy, picture: Picture | None = None
) -> Iterator[str]:
    """What does not hold for the plan of these; `picture` is the machine's, made once for many budgets."""
    made = plan(machine, budget, policy)
    if plan(machine, budget, policy) != made:
        yield "the same inputs give another plan"
    yield from faults(made, machine, budget, policy, picture)
    if budget.cpus is None:
        yield from _annotations(made, machine, budget, policy)


def faults(
    made: Plan, machine: Machine | None, budget: Budget, policy: Policy, picture: Picture | None = None
) -> Iterator[str]:
    """What is wrong with this plan of these."""
    yield from _counts(made, machine, budget, policy)
    yield from _spinning(made, budget, policy)
    yield from _reasons(made, policy)
    yield from _layout(made, policy)
    if machine is None:
        if not made.safe or made.cpus is not None or made.affinity_groups or made.memory_numa_node is not None:
            yield "CPUs of an unknown machine"
        return
    if made.safe:
        yield "a plan for a known node calls itself safe"
    yield from _room(made, machine, budget, policy)
    yield from _exclusiveness(made, machine, budget)
    if made.cpus is not None:
        yield from _cpus(made, machine, budget, policy)
        yield from worker_invariants.faults(made, machine)
        yield from _against_the_reference(made, picture or Picture(machine), budget, policy)
        yield from worker_invariants.other_counts(machine, budget, policy)


def _annotations(made: Plan, machine: Machine | None, budget: Budget, policy: Policy) -> Iterator[str]:
    shim = wire.shim_text(made, policy, machine)
    if len(shim) > env.RESERVED_SHIM or env.decode(shim).get("intra_op", made.intra_op) != made.intra_op:
        yield f"RADDLE_PLAN is {shim}"
    variable = env.decode(shim).get("intra_op_without_shim", made.intra_op)
    if "onnxruntime" in policy.runtimes and variable != made.intra_op_without_shim:
        yield f"a variable of {variable}, the count without a shim is {made.intra_op_without_shim}"
    text = wire.plan_text(made, budget, policy, "InferenceThreading/name", "node")
    if len(text.encode()) > env.RESERVED_PLAN:
        yield f"the plan annotation has {len(text)} characters"


def _counts(made: Plan, machine: Machine | None, budget: Budget, policy: Policy) -> Iterator[str]:
    intra = made.intra_op
    if intra is None:
        limited = budget.quota_cpus is not None or (machine is not None and policy.budget_source != "Limit")
        if policy.intra_op is not None or (limited and policy.budget_source != "Node"):
            yield "no count although something bounds it"
        if {made.omp, made.blas, made.other_blas, made.torch_inter_op, made.global_intra_op} != {None}:
            yield "other counts without an intra-op count"
        return
    if not 1 <= intra <= env.MAX_THREADS:
        yield f"intraOp {intra}"
    if policy.intra_op is None:
        if not policy.min_intra_op <= intra <= policy.max_intra_op:
            yield f"intraOp {intra} outside minIntraOp and maxIntraOp"
        if made.cap is None:
            yield "a count without a cap"
        elif not made.over_quota and intra * made.streams > max(made.streams, made.cap) and intra > policy.min_intra_op:
            yield f"{made.streams} streams of {intra} threads, a cap of {made.cap}"
    elif intra != policy.intra_op:
        yield "another count than the policy's"
    yield from _without_shim(made, intra, policy)
    yield from _other_counts(made, intra)
    yield from _load(made, budget, policy)


def _load(made: Plan, budget: Budget, policy: Policy) -> Iterator[str]:
    applies = policy.run_time_us is not None and policy.objective == "Latency" and budget.shim and not budget.gpu
    if made.expected is not None and not applies:
        yield "figures are expected where the rule load does not hold"
    elsewhere = made.expected is None or made.streams > 1 or made.exclusive_cpus
    if made.over_quota and (elsewhere or (made.intra_op or 0) > MOST_OVER_LIMIT):
        yield f"{made.intra_op} threads above the limit, {made.streams} streams, {made.exclusive_cpus} exclusive CPUs"
    shared = policy.intra_op is None and policy.min_intra_op == 1 and not made.exclusive_cpus
    most = max(made.omp or 1, made.blas or 1, made.other_blas or 1)
    # Rounded up also for Throughput, as libraries do that read the limit themselves.
    if shared and made.cap is not None and most > max(made.cap, ceil(made.budget_cpus or 0)):
        yield f"OpenMP or BLAS with {most} threads above a cap of {made.cap}"
    if shared and budget.quota_cpus and policy.budget_source == "Auto" and policy.objective == "Latency":
        unbounded = max(1, (int(made.budget_cpus or 0) - 1) // made.streams)
        if policy.spinning in {"Auto", "Bounded"} and most > unbounded and not budget.shim:
            yield f"OpenMP or BLAS with {most} threads may spin on {made.budget_cpus} shared CPUs"


def _without_shim(made: Plan, intra: int, policy: Policy) -> Iterator[str]:
    count = made.intra_op_without_shim or 0
    least = intra if policy.intra_op is not None else min(intra, policy.min_intra_op)
    if not max(1, least) <= count <= intra:
        yield f"{count} threads without a shim, {intra} with one"
    if count != intra and not made.over_quota and (policy.spinning == "Always" or made.exclusive_cpus):
        yield f"{count} threads without a shim, where these may spin"


def _other_counts(made: Plan, intra: int) -> Iterator[str]:
    for name, count in (("omp", made.omp), ("blas", made.blas), ("other BLAS", made.other_blas)):
        if count is not None and not 1 <= count <= max(intra, ceil(made.budget_cpus or 0)):
            yield f"{name} {count} beside intraOp {intra}"
    for name, count in (("interOp", made.inter_op), ("global", made.global_intra_op), ("torch", made.torch_inter_op)):
        if count is not None and not 1 <= count <= env.MAX_THREADS:
            yield f"{name} {count}"


def _spinning(made: Plan, budget: Budget, policy: Policy) -> Iterator[str]:
    if policy.spinning != "Auto":
        if made.spinning != policy.spinning.lower():
            yield "another spinning than the policy's"
    elif made.spinning != "never":
        if made.spinning != "bounded" or made.spin_duration_us < 1:
            yield f"spinning {made.spinning} for {made.spin_duration_us} µs without the policy's word"
        if made.streams > 1 or budget.gpu or (not made.over_quota and (made.budget_cpus or 0) < 1):
            yield f"spinning with {made.streams} streams, GPU {budget.gpu}, {made.budget_cpus} CPUs"
        if not made.over_quota and made.peak_runnable.get("onnxruntime", 0) > ceil(made.budget_cpus or 0):
            yield f"spinning with {made.peak_runnable} runnable on {made.budget_cpus} CPUs"


def _reasons(made: Plan, policy: Policy) -> Iterator[str]:
    values = {
        "intraOp": True,
        "intraOpWithoutShim": made.intra_op_without_shim != made.intra_op,
        "interOp": True,
        "spinning": True,
        "affinity": True,
        "omp": made.omp is not None,
        "blas": made.blas is not None,
        "streams": made.streams > 1,
        "globalIntraOp": made.global_intra_op is not None,
        "layout": made.layout is not None,
        "expected": made.expected is not None,
    }
    for name, there in values.items():
        if there and not made.because.get(name):
            yield f"no reason for {name}"
    if made.layout is not None and policy.objective != "Throughput":
        yield "a layout without Throughput"


def _layout(made: Plan, policy: Policy) -> Iterator[str]:
    if made.layout is None:
        if policy.objective == "Throughput" and made.cap is not None:
            yield "no layout for Throughput"
        return
    if made.layout.workers < 1 or not 1 <= made.layout.threads <= 4:
        yield f"a layout of {made.layout.workers} x {made.layout.threads}"


def _room(made: Plan, machine: Machine, budget: Budget, policy: Policy) -> Iterator[str]:
    allowed = machine.online if budget.cpus is None else budget.cpus & machine.online
    room = places(machine, allowed, policy)
    if made.cap is not None and made.cap > room:
        yield f"a cap of {made.cap} where {room} threads have a {'CPU' if policy.smt == 'AllThreads' else 'core'} each"
    if made.budget_cpus is not None and made.budget_cpus > cpuset.count(allowed):
        yield f"{made.budget_cpus} CPUs counted where {cpuset.count(allowed)} may be used"
    exclusive = made.exclusive_cpus > 0
    if exclusive and budget.cpus is None and made.cap is not None and made.cap > made.exclusive_cpus:
        yield f"a cap of {made.cap} on {made.exclusive_cpus} exclusive CPUs"
    quota = budget.quota_cpus
    if not exclusive and quota is not None and isfinite(quota) and policy.budget_source in {"Auto", "Limit"}:
        latency = policy.objective == "Latency"
        if made.cap is not None and made.cap > max(1, ceil(quota) if latency else int(quota)):
            yield f"a cap of {made.cap} under a limit of {quota} CPUs"
    if made.layout is not None and made.layout.workers > _instances(made.layout.threads, machine, allowed, policy):
        yield f"a layout of {made.layout.workers} x {made.layout.threads} on {room} cores"


def _instances(threads: int, machine: Machine, cpus: int, policy: Policy) -> int:
    """How many instances of that many threads fit, none spans two L3 domains or NUMA nodes where all are known."""
    nodes = [node.cpus for node in machine.numa_nodes] or [cpus]
    l3_domains = [domain.cpus for domain in machine.l3_domains] or [cpus]
    if cpus & ~union(nodes) or cpus & ~union(l3_domains):
        return places(machine, cpus, policy) // threads
    parts = [cpus & node & l3 for node in nodes for l3 in l3_domains]
    return sum(places(machine, part, policy) // threads for part in parts)


def _exclusiveness(made: Plan, machine: Machine, budget: Budget) -> Iterator[str]:
    expected = (
        machine.kubelet.cpu_manager_policy == "static"
        and budget.whole_cpus >= 1
        and (budget.cpus is None or cpuset.count(budget.cpus) == budget.whole_cpus)
    )
    if made.exclusive_cpus != (budget.whole_cpus if expected else 0):
        yield f"{made.exclusive_cpus} exclusive CPUs"
    if made.affinity != "none" and (not expected or made.streams > 1 or (made.intra_op or 0) < 2):
        yield f"affinity {made.affinity} with {made.streams} streams of {made.intra_op} threads"
    if (made.cpus is None) != (not expected or budget.cpus is None):
        yield "CPUs are chosen exactly where they are known and exclusive"
    if made.cpus is None and (made.affinity_groups or made.memory_numa_node is not None):
        yield "groups or a memory node without CPUs"


def _cpus(made: Plan, machine: Machine, budget: Budget, policy: Policy) -> Iterator[str]:
    cpus = made.cpus or 0
    if not cpus or cpus & ~(budget.cpus or 0) or cpus & ~machine.online:
        yield f"CPUs {cpuset.format_list(cpus)} outside {cpuset.format_list(budget.cpus or 0)}"
    if (made.intra_op or 1) > (made.cap or 1):
        # The policy names more threads than have room where it wants them.
        return
    if policy.core_type != "Any" and len(machine.core_types) > 1:
        touched = [kind for kind in machine.core_types if kind.cpus & cpus]
        capacities = {kind.capacity or 0 for kind in touched}
        slow = slowest(kind.capacity for kind in machine.core_types)
        on_arm = policy.core_type == "Auto" and None not in {kind.capacity for kind in machine.core_types}
        if len(touched) > 1 and not (on_arm and (not capacities & slow or capacities <= slow)):
            yield f"one pool across {', '.join(kind.name for kind in touched)}"
    if policy.numa == "SingleNUMANode" and sum(1 for node in machine.numa_nodes if node.cpus & cpus) > 1:
        yield "more than one NUMA node for SingleNUMANode"


def _against_the_reference(made: Plan, picture: Picture, budget: Budget, policy: Policy) -> Iterator[str]:
    pool = picture.pool(as_set(budget.cpus or 0), policy, gpu=budget.gpu, threads=made.intra_op or 1)
    if as_set(made.cpus or 0) != pool.cpus:
        yield f"pool {cpuset.format_list(made.cpus or 0)}, the rules say {sorted(pool.cpus)}"
    if made.cap != pool.threads:
        yield f"a cap of {made.cap}, the rules say {pool.threads}"
    groups = picture.groups(pool, made.intra_op or 1, made.affinity)
    masks = {group: cpuset.of(set(group)) for group in set(groups)}
    if made.affinity_groups != tuple(masks[group] for group in groups):
        yield f"groups {made.affinity_groups}, the rules say {[sorted(group) for group in groups]}"


def wider(machine: Machine | None, budgets: tuple[Budget, Budget], policy: Policy) -> Iterator[str]:
    """What does not hold for two budgets of one class, the second the wider one."""
    less, more = (plan(machine, budget, policy) for budget in budgets)
    if less.intra_op is not None and (more.intra_op is None or more.intra_op < less.intra_op):
        yield f"{less.intra_op} threads, with a wider budget {more.intra_op}"
    if less.cap is not None and (more.cap is None or more.cap < less.cap):
        yield f"a cap of {less.cap}, with a wider budget {more.cap}"


def in_the_container(machine: Machine, budget: Budget, policy: Policy) -> Iterator[str]:
    """What does not hold where a plan made at binding meets the CPUs of `budget`: it is cut to what there is."""
    planned = plan(machine, budget._replace(cpus=None), policy)
    fields = env.decode(wire.shim_text(planned, policy, machine))
    there = plan(machine, budget, policy)
    facts = current.Facts(budget.cpus, budget.quota_cpus, min(budget.workers, env.MAX_STREAMS))
    exclusive = there.exclusive_cpus > 0 and budget.cpus is not None
    if exclusive:
        facts.placed = current.place(fields, budget.cpus)
        # One with too many CPUs that follow no order is not told of.
        if facts.placed is not None or ("cpus" in fields and not (budget.cpus or 0) & ~machine.online):
            placed = place(machine, there.exclusive_cpus, placement_policy(policy, gpu=budget.gpu), budget.cpus)
            if facts.placed != placed:
                yield f"placed {facts.placed} by what the plan tells of the machine, by the machine {placed}"
    found = resolution.resolve(fields, facts)
    for name, count in (
        ("intra_op", found.intra_op),
        ("inter_op", found.inter_op),
        ("global_intra_op", found.global_intra_op),
    ):
        if (count is None) != (name not in fields) or not 1 <= (count or 1) <= int(fields.get(name, 1)):
            yield f"{name} {count} in the container, planned {fields.get(name)}"
    if facts.placed is not None and found.intra_op is not None:
        least = min(planned.intra_op or 1, there.intra_op or 1)
        if found.intra_op != least:
            yield f"{found.intra_op} threads in the container, planned {planned.intra_op}, there {there.intra_op}"
