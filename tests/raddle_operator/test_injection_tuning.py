"""A policy that names a tuning: its winner is planned with where the result is valid, and the plan says why or why not."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.injections import KNOWN, inject
from support.machines import of_size
from support.tunings import SERVED_IMAGE, by_name, candidates, of_class, summary, with_status

from cluster import objects
from raddle import env
from raddle.cpus.topology import Kubelet
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle.planning.wire import TuningTarget, read_plan_text
from raddle_operator.injection.binding import rebind
from raddle_operator.injection.tuning import NOT_READ, TuningContext, overlay
from raddle_operator.objects.pods import pod_from_object, workload_of
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import BoundTest, Interval, Verdict

NODE, OTHER = of_size(32), of_size(16)
TITLE = "Synthetic, 2 sockets, 2 NUMA nodes, 2 L3 domains, 16 cores, 32 CPUs"
RANKER = ({"kind": "ReplicaSet", "name": "ranker-7d9f", "controller": True},)
OF_RANKER = TuningTarget(SERVED_IMAGE, "Deployment/ranker", door=True)


def pod(cpu="4", owners=RANKER, image=SERVED_IMAGE, others=(), **spec):
    served = objects.container(cpu=cpu, image=image)
    made = objects.pod(*others, served, name="p", labels={"pod-template-hash": "7d9f"}, **spec)
    made["metadata"]["ownerReferences"] = list(owners)
    return made


def created(obj, spec, tunings=None, **more):
    """A pod's annotations as they are before it is bound."""
    patched, _ = inject(obj, spec, facts=replace(KNOWN, tunings=tunings), **more)
    return patched["metadata"]["annotations"]


def bound(tunings, *, spec=None, machine=NODE, obj=None, **more):
    """What the plan says once the pod is bound, and what the shim is told."""
    annotations = created(obj or pod(), spec or {"tuning": "ranker"}, **more)
    changed = rebind(annotations, "n1", machine, namespace="ns", tunings=tunings).annotations
    shim = changed.get("shim.raddle.dev/serve")
    return read_plan_text(changed["plan.raddle.dev/serve"]), shim and env.decode(shim)


def of(**changes):
    """A tuning of the one class, whose summary has these changes."""
    return by_name(with_status(of_class(summary(NODE, **changes))))


BETTER = of()
MEASURED = of_class(summary(NODE))
NEVER = Candidate.of({"threads.spinning": "Never"})
OTHER_RUNTIME = {"runtime": "torch", "runtime_version": "2.9.0"}


def test_a_winner_is_planned_with_where_its_result_is_valid():
    plan, shim = bound(BETTER)
    assert (plan.values["intraOp"], shim["intra_op"]) == (3, 3)
    assert plan.tuning == OF_RANKER._replace(by="ranker")


SLOWER = {"gain": Interval(percent=9.0, low=4.0, high=14.0)}
KEEPS = {**SLOWER, "bound": BoundTest(bound_ms=20.0, queries=900, over=1, needed=662)}
COST = {"key": {"objective": Objective(kind=Kind.COST, rate=50.0)}, "figure": "cpu_ms_per_request"}
ON = f" on {TITLE}, 2026-11-23 (InferenceTuning ranker)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, f"intraOp 3, slowest tenth -18.0 % [-23.0, -12.0]{ON}"),
        # It only keeps the bound, and is not said to gain.
        (KEEPS, f"intraOp 3, keeps p99 within 20 ms (the plan does not){ON}"),
        # No policy can say Cost: such a tuning is for who names it.
        (COST, f"intraOp 3, CPU a request -18.0 % [-23.0, -12.0]{ON}"),
    ],
)
def test_the_reason_says_what_the_winner_gains(changes, said):
    assert bound(of(**changes))[0].because["tuned"] == said


def test_the_plan_shows_for_how_long_the_winners_threads_spin():
    entry = "session.intra_op.spin_duration_us"
    spins = {"threads.spinning": "Bounded", f"onnxruntime.configEntries.{entry}": 1000}
    plan, shim = bound(of(winner=Candidate.of(spins)))
    assert (plan.values["spinDurationUs"], shim[entry]) == (1000, 1000)


def test_what_is_recorded_is_the_policy_without_it_so_that_another_binding_decides_anew():
    annotations = created(pod(), {"tuning": "ranker"})
    annotations |= rebind(annotations, "n1", NODE, namespace="ns", tunings=BETTER).annotations
    again = rebind(annotations, "n2", OTHER, namespace="ns", tunings=BETTER)
    plan = read_plan_text(again.annotations["plan.raddle.dev/serve"])
    assert plan.values["intraOp"] == 4
    assert plan.policy == Policy(tuning="ranker")


def test_the_plan_stays_where_it_is_best_and_says_so():
    plan, _ = bound(of(verdict=Verdict.NO_DIFFERENCE, winner=Candidate(), gain=None))
    assert plan.values["intraOp"] == 4
    assert plan.because["tuned"] == f"the plan is best on {TITLE}, 2026-11-23 (InferenceTuning ranker)"
    assert plan.tuning.by == "ranker"


def test_what_only_the_program_can_set_is_said_and_not_planned_with():
    won = Candidate.of({"threads.intraOp": 3, "program.ioBinding": True})
    plan, _ = bound(of(winner=won))
    assert plan.values["intraOp"] == 3
    assert plan.because["tuned"].startswith("intraOp 3, slowest tenth -18.0 %")
    assert plan.because["tuned"].endswith("; the program has to have ioBinding True for it")


def test_instances_of_a_model_alone_have_to_be_the_containers_processes():
    won = Candidate.of({"program.instances": 2, "budget.workersPerContainer": 2, "threads.intraOp": 1})
    tunings = of(winner=won, key={"model": "sha256:5e"})
    plan, _ = bound(tunings)
    assert plan.values["intraOp"] == 4
    assert plan.because["tuned"] == (
        "InferenceTuning ranker: the container has 1 process, but the tuning is for 2 processes"
    )
    plan, _ = bound(tunings, spec={"tuning": "ranker", "budget": {"workersPerContainer": 2}})
    assert plan.values["intraOp"] == 1


def test_a_pod_whose_node_is_known_when_it_is_created_gets_the_winner_and_its_variables_at_once():
    for tunings, intra in ((BETTER, 3), (of(winner=NEVER, key=OTHER_RUNTIME), 4)):
        facts = replace(KNOWN, machines={"n1": NODE}, tunings=tunings)
        patched, _ = inject(pod(nodeName="n1"), {"tuning": "ranker"}, facts=facts)
        plan = read_plan_text(patched["metadata"]["annotations"]["plan.raddle.dev/serve"])
        assert (plan.node, plan.values["intraOp"], plan.tuning.by) == ("n1", intra, "ranker")
    variables = {one["name"]: one.get("value") for one in patched["spec"]["containers"][0]["env"]}
    assert variables["RADDLE_LITERALS"] == "OMP_WAIT_POLICY=PASSIVE;KMP_BLOCKTIME=0"


def test_before_a_pod_is_bound_its_plan_is_the_one_without():
    annotations = created(pod(), {"tuning": "ranker"}, BETTER)
    plan = read_plan_text(annotations["plan.raddle.dev/serve"])
    assert (plan.values["intraOp"], plan.because["tuned"]) == (4, "the node is not known yet")


def test_a_policy_that_names_no_tuning_records_nothing_of_it():
    plan, _ = bound(BETTER, spec={"threads": {"minIntraOp": 1}})
    assert (plan.values["intraOp"], plan.tuning) == (4, None)
    assert "tuned" not in plan.because


STATIC = NODE._replace(kubelet=Kubelet(cpu_manager_policy="static"))
GUARANTEED = pod()
GUARANTEED["spec"]["containers"] = [objects.guaranteed(cpu="4", image=SERVED_IMAGE)]
OF_MAIN = {"workload": {"kind": "Deployment", "name": "ranker", "container": "main"}}
DIGEST = "sha256:" + "1a" * 32
BESIDE = pod(others=[objects.container("main", cpu="4", image=SERVED_IMAGE)])
STATEFUL = pod(owners=[{"kind": "StatefulSet", "name": "triton", "controller": True}])


def under(**spec):
    return {"spec": {"tuning": "ranker", **spec}}


def tuned(result=MEASURED, **status):
    return {"tunings": by_name(with_status(result, **status))}


@pytest.mark.parametrize(
    ("reason", "there"),
    [
        (
            (
                "the node is Synthetic, 1 socket, 1 NUMA node, 2 L3 domains, 8 cores, 16 CPUs, but the tuning is for "
                f"{TITLE}"
            ),
            {"machine": OTHER},
        ),
        ("the CPU limit is 2 CPUs, but the tuning is for 4 CPUs", {"obj": pod(cpu="2")}),
        ("the CPU limit is 4 exclusive CPUs, but the tuning is for 4 CPUs", {"machine": STATIC, "obj": GUARANTEED}),
        (
            "the image is example.test/serve:2, but the tuning is for example.test/serve:1",
            {"obj": pod(image="example.test/serve:2")},
        ),
        (
            f"the image is sha256:77, but the tuning is for {DIGEST[:19]}",
            {"tunings": of(key={"image": DIGEST}), "obj": pod(image="x@sha256:77")},
        ),
        ("the image that was measured is not known", tuned(of_class(summary(NODE), image=""))),
        ("the objective is Throughput, but the tuning is for Latency", under(objective="Throughput")),
        ("the rate is 80 requests/s, but the tuning is for 50 requests/s", under(load={"requestsPerSecond": 80})),
        ("the workload is StatefulSet/triton, but the tuning is for Deployment/ranker", {"obj": STATEFUL}),
        (
            "no Deployment, StatefulSet or DaemonSet owns the pod, but the tuning is for Deployment/ranker",
            {"obj": pod(owners=())},
        ),
        ("the container is serve, but the tuning is for the first one", {"obj": BESIDE}),
        ("the container is serve, but the tuning is for main", tuned(**OF_MAIN)),
        (
            "the policy does not allow the winner: threads.intraOp: 3 is not allowed; it must be from 1 to 2",
            under(threads={"maxIntraOp": 2}),
        ),
        ("its result for this node class is Inconclusive", {"tunings": of(verdict=Verdict.INCONCLUSIVE)}),
        # The nodes are yet to agree, or nothing is measured.
        ("it has no result yet", tuned(of_class(summary(NODE), verdict=""))),
        ("it has no result yet", {"tunings": by_name(with_status())}),
    ],
)
def test_what_does_not_fit_is_said_and_the_plan_is_the_one_without(reason, there):
    plan, _ = bound(**{"tunings": BETTER, **there})
    assert plan.because["tuned"] == f"InferenceTuning ranker: {reason}"
    assert plan.tuning.by == ""
    assert plan.values["intraOp"] != 3


@pytest.mark.parametrize(
    "there",
    [
        # A container that the tuning names, wherever it stands.
        {**tuned(workload={**OF_MAIN["workload"], "container": "serve"}), "obj": BESIDE},
        # The first container behind a proxy.
        {"obj": pod(others=[objects.container("istio-proxy", image="proxy:1")])},
        # Any workload, of an image that was measured alone.
        {**tuned(workload=None, image=SERVED_IMAGE, resources={"limits": {"cpu": "4"}}), "obj": pod(owners=())},
        # Exclusive CPUs, where they were measured.
        {"tunings": of(key={"exclusive": True}), "machine": STATIC, "obj": GUARANTEED},
        # An image by its digest, where both are known.
        {"tunings": of(key={"image": DIGEST}), "obj": pod(image=f"mirror.test/serve@{DIGEST}")},
    ],
)
def test_what_fits_is_planned_with(there):
    plan, _ = bound(**{"tunings": BETTER, **there})
    assert plan.tuning.by == "ranker", plan.because["tuned"]


def test_a_winner_whose_variables_the_pod_was_created_without_is_not_said_to_be_used():
    tunings = of(winner=NEVER, key=OTHER_RUNTIME)
    plan, _ = bound(tunings)
    assert plan.because["tuned"] == (
        "InferenceTuning ranker: spinning Never requires OMP_WAIT_POLICY, KMP_BLOCKTIME, set only when a pod is "
        "created, from the policy's own settings"
    )
    assert (plan.tuning.by, plan.values["spinning"]) == ("", "bounded")


def test_variables_that_a_winner_goes_without_are_missed_too():
    plan, _ = bound(of(winner=Candidate.of({"threads.spinning": "Always"}), key=OTHER_RUNTIME))
    assert "spinning Always requires OMP_WAIT_POLICY, KMP_BLOCKTIME, " in plan.because["tuned"]


def test_a_winner_that_the_policy_says_itself_has_its_variables():
    spec = {"tuning": "ranker", "threads": {"spinning": "Never"}}
    assert bound(of(winner=NEVER, key=OTHER_RUNTIME), spec=spec)[0].tuning.by == "ranker"


def test_onnxruntimes_own_threads_need_no_variable_of_openmps():
    plan, shim = bound(of(winner=NEVER))
    assert (plan.tuning.by, shim["spinning"]) == ("ranker", "never")


def test_counts_that_annotations_say_still_change_whatever_the_runtime():
    plan, shim = bound(of(key=OTHER_RUNTIME))
    assert (plan.tuning.by, shim["omp"]) == ("ranker", 3)


def test_a_reference_that_the_pod_was_created_without_can_not_be_added():
    # With one thread OpenBLAS follows OMP_NUM_THREADS.
    spec = {"tuning": "ranker", "threads": {"intraOp": 1}, "shim": "None"}
    plan, _ = bound(of(key=OTHER_RUNTIME), spec=spec)
    assert "intraOp 3 requires OPENBLAS_NUM_THREADS, " in plan.because["tuned"]


TWO = Candidate.of({"threads.intraOp": 2})
OWN_COUNT = {"env": [{"name": "OMP_NUM_THREADS", "value": "8"}]}
OWN_WORD = {"env": [{"name": "OMP_WAIT_POLICY", "value": "ACTIVE"}]}
HIDDEN = "because the pod spec sets {}: remove it there, or set existingValues: Override in the policy"


def with_env(own, **more):
    made = pod(**more)
    made["spec"]["containers"][0] |= own
    return made


def of_placed(obj, spec, tunings):
    """What the plan says of a pod that is created on its node."""
    patched, _ = inject(obj, spec, facts=replace(KNOWN, machines={"n1": NODE}, tunings=tunings))
    return read_plan_text(patched["metadata"]["annotations"]["plan.raddle.dev/serve"])


@pytest.mark.parametrize("node", [{}, {"nodeName": "n1"}], ids=["bound", "placed"])
@pytest.mark.parametrize(
    ("own", "won", "hidden"),
    [
        (OWN_COUNT, TWO, "intraOp 2 has no effect, " + HIDDEN.format("OMP_NUM_THREADS")),
        (OWN_WORD, NEVER, "spinning Never has no effect, " + HIDDEN.format("OMP_WAIT_POLICY")),
    ],
)
def test_a_winner_whose_variables_the_pod_spec_sets_itself_is_said_to_be_hidden(node, own, won, hidden):
    tunings = of(winner=won, key=OTHER_RUNTIME)
    obj = with_env(own, **node)
    plan = of_placed(obj, {"tuning": "ranker"}, tunings) if node else bound(tunings, obj=obj)[0]
    assert plan.because["tuned"] == f"InferenceTuning ranker: {hidden}"
    assert plan.tuning.by == ""


@pytest.mark.parametrize("placed", [False, True], ids=["bound", "placed"])
def test_another_librarys_count_in_the_pod_spec_was_there_when_it_was_measured_and_hides_nothing(placed):
    obj = with_env({"env": [{"name": "RAYON_NUM_THREADS", "value": "1"}]}, **({"nodeName": "n1"} if placed else {}))
    spec = {"tuning": "ranker", "runtimes": ["torch", "rayon"]}
    tunings = of(winner=TWO, key=OTHER_RUNTIME)
    plan = of_placed(obj, spec, tunings) if placed else bound(tunings, spec=spec, obj=obj)[0]
    assert plan.tuning.by == "ranker", plan.because["tuned"]


def test_a_policy_that_overrides_the_pod_specs_variables_hides_nothing():
    tunings = of(key=OTHER_RUNTIME)
    plan, shim = bound(tunings, obj=with_env(OWN_COUNT), spec={"tuning": "ranker", "existingValues": "Override"})
    assert (plan.tuning.by, shim["omp"]) == ("ranker", 3)


def test_a_count_of_openmps_hides_nothing_of_onnxruntimes_own():
    plan, shim = bound(BETTER, obj=with_env(OWN_COUNT))
    assert (plan.tuning.by, shim["intra_op"]) == ("ranker", 3)


def test_an_allocator_needs_the_shim():
    tunings = of(winner=Candidate.of({"allocator": "Mimalloc"}))
    assert bound(tunings)[1]["allocator"] == "mimalloc"
    plan, _ = bound(tunings, door=False)
    assert plan.because["tuned"].startswith(
        "InferenceTuning ranker: allocator Mimalloc requires the shim, set only when"
    )
    assert plan.tuning.by == ""


def test_a_tuning_that_is_not_there_is_said_with_its_namespace():
    plan, _ = bound({})
    assert plan.because["tuned"] == "there is no InferenceTuning ranker in namespace ns"
    elsewhere = by_name(with_status(MEASURED, namespace="other"))
    assert bound(elsewhere)[0].because["tuned"] == "there is no InferenceTuning ranker in namespace ns"


def test_a_cluster_that_does_not_tune_says_so():
    plan, _ = bound(None)
    assert plan.values["intraOp"] == 4
    assert plan.because["tuned"] == NOT_READ


def test_auto_is_the_newest_tuning_of_the_pods_workload_that_fits():
    newest = summary(NODE, winner=TWO, finished="2026-11-25T10:00:00Z")
    unfit = of_class(replace(newest, finished="2026-11-26T10:00:00Z"), image="example.test/serve:0")
    tunings = by_name(
        with_status(MEASURED, name="first"),
        with_status(of_class(newest), name="second"),
        with_status(unfit, name="third"),
        with_status(of_class(newest), name="others", workload={"kind": "Deployment", "name": "resnet"}),
        with_status(of_class(newest), name="elsewhere", namespace="other"),
        with_status(name="fourth"),
    )
    plan, _ = bound(tunings, spec={"tuning": "Auto"}, obj=pod(owners=RANKER))
    assert (plan.values["intraOp"], plan.tuning) == (2, OF_RANKER._replace(by="second"))


def test_auto_says_of_the_newest_why_it_does_not_fit():
    tunings = by_name(
        with_status(of_class(summary(NODE, key={"limit_cpus": 1.0})), name="first"),
        with_status(of_class(summary(NODE, key={"limit_cpus": 2.0}, finished="2026-11-25T10:00:00Z")), name="second"),
    )
    plan, _ = bound(tunings, spec={"tuning": "Auto"}, obj=pod(owners=RANKER))
    assert plan.because["tuned"] == "InferenceTuning second: the CPU limit is 4 CPUs, but the tuning is for 2 CPUs"


@pytest.mark.parametrize(
    ("owners", "reason"),
    [
        (
            [],
            "no Deployment, StatefulSet or DaemonSet owns the pod; for other pods the policy must name a tuning of their image",
        ),
        ([{"kind": "StatefulSet", "name": "db", "controller": True}], "there is no InferenceTuning of StatefulSet/db"),
    ],
)
def test_auto_says_whose_tuning_is_missing(owners, reason):
    plan, _ = bound(BETTER, spec={"tuning": "Auto"}, obj=pod(owners=owners))
    assert plan.because["tuned"].startswith(reason)


@pytest.mark.parametrize(
    ("owners", "workload"),
    [
        ([*RANKER], "Deployment/ranker"),
        ([{"kind": "DaemonSet", "name": "agent", "controller": True}], "DaemonSet/agent"),
        ([{"kind": "ReplicaSet", "name": "ranker-77aa", "controller": True}], ""),
        ([{"kind": "ReplicaSet", "name": "ranker", "controller": True}], ""),
        ([{"kind": "Deployment", "name": "ranker"}], ""),
        ([{"kind": "Job", "name": "batch", "controller": True}], ""),
        (["ranker"], ""),
        ({"kind": "Deployment"}, ""),
    ],
)
def test_whose_a_pod_is_comes_from_its_controller(owners, workload):
    obj = pod()
    obj["metadata"]["ownerReferences"] = owners
    assert workload_of(pod_from_object(obj)) == workload


@example(Candidate.of({"threads": 1, "threads.intraOp": 3}), Verdict.BETTER, 4.0, False)
@given(candidates, st.sampled_from(Verdict), st.sampled_from([None, 1.0, 4.0]), st.booleans())
def test_following_ends_in_a_policy_and_a_reason_whatever_won(winner, verdict, limit_cpus, alone):
    tunings = of(winner=winner, verdict=verdict, key={"limit_cpus": limit_cpus, "model": "sha256:5e" * alone})
    policy = Policy(tuning="ranker", min_intra_op=2)
    place = TuningContext("ns", "serve", OF_RANKER, NODE)
    overlaid = overlay(policy, Budget(quota_cpus=4.0), place, tunings)
    assert overlaid.because
    assert overlaid.policy == policy or overlaid.target.by == "ranker"
