"""What became of a tuning's Job: its and its pod's statuses as the Job controller and kubelets write them."""

from dataclasses import replace

import pytest
from support.measured import DIGEST, outcome

from raddle_operator.jobs.run import State, job_from_object, job_name, pod_from_object, run_of
from raddle_operator.results.summary import Failed, to_text

NAME = job_name("ranker", "tuning-uid", 3, "a", 2)
TIME = "2027-01-15T08:00:00Z"
TIME_S = 1_800_000_000
SAID = to_text(outcome())
STOPPED = to_text(Failed("ended before anything was certain: its pod was stopped"))


def job(*, condition=None, **metadata):
    given = {
        "name": NAME,
        "uid": "job-uid",
        "creationTimestamp": TIME,
        "labels": {"raddle.dev/tuning": "ranker"},
        "annotations": {
            "raddle.dev/tuning-node": "a",
            "raddle.dev/tuning-generation": "3",
            "raddle.dev/tuning-try": "2",
        },
        "ownerReferences": [{"kind": "InferenceTuning", "uid": "tuning-uid", "controller": True}],
    }
    conditions = [] if condition is None else [{"status": "True", **condition}]
    return {"metadata": {**given, **metadata}, "status": {"conditions": conditions}}


def pod(*, tuner=None, measured=None, deleted=None, **status):
    owner = {"kind": "Job", "uid": "job-uid", "controller": True}
    found = {"phase": "Running", **status}
    if tuner is not None:
        found["containerStatuses"] = [{"name": "tuner", "state": tuner}]
    if measured is not None:
        found["initContainerStatuses"] = [{"name": "serve", "imageID": f"registry.example/app@{DIGEST}", **measured}]
    metadata = {"name": "ranker-1-x", "creationTimestamp": TIME, "ownerReferences": [owner]}
    metadata |= {} if deleted is None else {"deletionTimestamp": deleted}
    spec = {"initContainers": [{"name": "fetch", "image": "fetch:1"}, {"name": "serve", "image": "app:1"}]}
    return {"metadata": metadata, "spec": spec, "status": found}


def ended(message="", *, reason="Error", code=1):
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


DEADLINE = {"type": "Failed", "reason": "DeadlineExceeded"}
BACKOFF = {"type": "Failed", "reason": "BackoffLimitExceeded"}
DISRUPTION = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
OOM = {"lastState": ended(reason="OOMKilled", code=137)}

CASES = {
    "no pod yet": (job(), None, State.NO_POD, "has no pod"),
    "no room": (job(), pod(conditions=[UNSCHEDULABLE]), State.WAITING, "Unschedulable: Insufficient cpu"),
    "being created": (job(), pod(measured={"state": waiting("PodInitializing")}), State.WAITING, ""),
    "an image that can't be pulled": (job(), pod(measured={"state": waiting("ImagePullBackOff", "not found")}),
     State.WAITING, "serve: ImagePullBackOff: not found"),
    "the tuner's image": (job(), pod(tuner=waiting("ErrImagePull", "denied")), State.WAITING, "tuner: ErrImagePull"),
    "an image without a shell": (job(), pod(measured={"state": waiting("CrashLoopBackOff"),
     "lastState": ended("no such file", reason="StartError")}), State.FAILED,
     "serve: StartError: no such file; the image needs a shell"),
    "an init container that fails": (job(condition=BACKOFF), pod(phase="Failed",
     initContainerStatuses=[{"name": "fetch", "state": ended("no such bucket")}], tuner=waiting("PodInitializing")),
     State.FAILED, "fetch: Error, exit code 1: no such bucket"),
    "at work": (job(), pod(tuner={"running": {"startedAt": TIME}}), State.RUNNING, ""),
    "measured": (job(), pod(tuner=ended(SAID, reason="Completed", code=0)), State.MEASURED, ""),
    "an error": (job(), pod(tuner=ended(to_text(Failed("no model there")))), State.FAILED, "no model there"),
    "silence": (job(), pod(tuner=ended("Traceback\nKeyError: x")), State.FAILED,
     f"the tuner printed nothing (Error, exit code 1): KeyError: x; see `kubectl logs job/{NAME} -c tuner`"),
    "out of memory": (job(), pod(tuner=ended(to_text(Failed("it is gone"))), measured=OOM), State.FAILED,
     "OOMKilled: the measured container exceeded its memory limit"),
    "the tuner out of memory": (job(), pod(tuner=ended(reason="OOMKilled", code=137),
     measured={"state": {"running": {}}}), State.FAILED, "OOMKilled: the tuner, not the measured container"),
    "evicted": (job(condition=BACKOFF), pod(phase="Failed", reason="Evicted", message="low on memory",
     tuner=ended(code=137)), State.DISRUPTED, "Evicted: low on memory"),
    "drained": (job(), pod(tuner=ended(code=143), conditions=[DISRUPTION]), State.DISRUPTED, "EvictionByEvictionAPI"),
    "drained when all was said": (job(), pod(tuner=ended(SAID, code=0), conditions=[DISRUPTION]), State.MEASURED, ""),
    "drained before anything was certain": (job(), pod(tuner=ended(STOPPED), conditions=[DISRUPTION]), State.DISRUPTED,
     "EvictionByEvictionAPI"),
    "deleted before anything was certain": (job(condition=BACKOFF), pod(tuner=ended(STOPPED), deleted=TIME),
     State.DISRUPTED, "its pod was deleted"),
    "too slow, and being ended": (job(condition={**DEADLINE, "type": "FailureTarget"}),
     pod(tuner={"running": {"startedAt": TIME}}, deleted=TIME), State.RUNNING, ""),
    "too slow before anything was certain": (job(condition={**DEADLINE, "type": "FailureTarget"}),
     pod(tuner=ended(STOPPED), deleted=TIME), State.FAILED, "DeadlineExceeded"),
    "refused by the kubelet": (job(), pod(phase="Failed", reason="OutOfcpu"), State.DISRUPTED, "OutOfcpu"),
    "deleted": (job(condition=BACKOFF), None, State.DISRUPTED, "its pod is gone"),
    "too slow": (job(condition=DEADLINE), None, State.FAILED, "DeadlineExceeded"),
    "complete before its pod is seen to be": (job(condition={"type": "Complete"}),
     pod(tuner={"running": {"startedAt": TIME}}), State.RUNNING, ""),
    "being deleted": (job(deletionTimestamp=TIME), pod(tuner=ended(SAID)), State.ENDING, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_job(case):
    its_job, its_pod, state, message = CASES[case]
    found = run_of(job_from_object(its_job), its_pod and pod_from_object(its_pod))
    assert found.state is state
    assert message in found.message
    assert bool(found.message) is bool(message)


def test_what_was_measured_comes_with_the_image_that_the_node_resolved():
    unknown = outcome()
    unknown = replace(unknown, key=replace(unknown.key, image=""))
    made = pod(tuner=ended(to_text(unknown)), measured={"state": {"running": {}}})
    found = run_of(job_from_object(job()), pod_from_object(made))
    assert (found.outcome, found.image) == (outcome(), "app:1")


def test_a_job_says_whose_it_is():
    found = job_from_object(job())
    assert (found.owner, found.tuning, found.node) == ("tuning-uid", "ranker", "a")
    assert (found.generation, found.attempt, found.created_s) == (3, 2, TIME_S)
    assert pod_from_object(pod()).job == found.uid


@pytest.mark.parametrize(
    "changed",
    [
        {"annotations": {}},
        {"annotations": {"raddle.dev/tuning-node": "a"}},
        {"annotations": {"raddle.dev/tuning-generation": "x", "raddle.dev/tuning-try": "1"}},
        {"name": "a-copy-of-it"},
        {"labels": {"raddle.dev/tuning": "other"}},
        {"ownerReferences": []},
    ],
)
def test_a_job_that_was_not_made_for_a_tuning_is_none_of_ours(changed):
    assert job_from_object(job(**changed)) is None
