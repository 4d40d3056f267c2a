"""What an operations team does with an installed Raddle, on real nodes: test it, change a policy, resize a container."""

import json
import re
import subprocess
import time

import pytest
from support import real_pods as pods

from cluster.client import ApiError
from cluster.objects import policy
from cluster.waiting import settled
from e2e import release, verdict
from e2e.scenarios import GUEST, PATIENCE_SECONDS, RESIZED, SHOW, TWO, Container, Scenario
from e2e.waiting import wait

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

PODS_SECONDS = 300.0
# Ten seconds at most where nothing else runs: a status is not written more often.
STATUS_SECONDS = 180.0
# Two CPUs may be used, one of which is kept back and not counted unless a policy says so.
THREADS_BEFORE, THREADS_AFTER = 1, 2
CONTROLLER_PORT = 8080


def test_helm_test_passes_as_a_pod_that_asks_the_webhook_by_its_services_name(host, record_property):
    command = [host.cluster.provide_helm(), "test", "raddle", "--namespace", release.NAMESPACE, "--timeout", "300s"]
    environ, log = host.cluster.environment(), ""
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ) as testing:
        # Helm removes the pod as soon as it has passed, before `--logs` reads it.
        while testing.poll() is None:
            read = host.cluster.kubectl("-n", release.NAMESPACE, "logs", "--follow", "raddle-test", check=False)
            log = read.stdout or log
            time.sleep(0.1)
        said = testing.stdout.read()
    assert testing.returncode == 0, said
    answered = re.search(r"answered in (\d+ ms) and allows the pod", log)
    assert answered, log
    assert "Its certificate is signed by" in log
    record_property("e2e helm test", f"the webhook's Service answered in {answered[1]}, its certificate is verified")


def test_a_changed_policy_reaches_new_pods_and_old_ones_keep_what_they_have_and_are_counted_and_named(
    host, record_property
):
    scenario = Scenario(name="change", why="", qos="Burstable", containers=(Container(**TWO),), kind="Deployment")
    with pods.governed(host, "policy-change") as space:
        manifest = scenario.manifest(space.name)
        template = manifest["spec"]["template"]
        template["spec"]["containers"][0]["env"] = [{"name": "E2E_LOAD", "value": "0"}]
        manifest["spec"]["replicas"] = 2
        pods.wait_for_shim(space, {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "probe"}})
        space.client.apply(manifest)
        old = threads_of(space, 2)
        assert old == dict.fromkeys(old, THREADS_BEFORE)
        need_counted(space, injected=2, stale=0)
        start = time.monotonic()
        space.store(policy(threads={"intraOp": THREADS_AFTER}))
        need_counted(space, injected=2, stale=2)
        record_property("e2e policy change", f"2 of 2 pods are counted as stale after {time.monotonic() - start:.1f} s")
        need_named(space, stale=old)
        space.client.merge(space.client.path_of(manifest), {"spec": {"replicas": 3}})
        now = threads_of(space, 3)
        assert now == {**dict.fromkeys(now, THREADS_AFTER), **old}
        need_counted(space, injected=3, stale=2)
        need_named(space, stale=old)
        space.cluster.kubectl("-n", space.name, "rollout", "restart", f"deployment/{scenario.name}")
        last = threads_of(space, 3, but=now)
        assert last == dict.fromkeys(last, THREADS_AFTER)
        need_counted(space, injected=3, stale=0)


def threads_of(space, count, but=()):
    """Pod -> the threads of its session, once that many pods have said it that stay, none of them of `but`."""

    def threads():
        looks = {one["metadata"]["name"]: pods.look(space, one) for one in staying(space)}
        found = {name: look["threads"] for name, look in looks.items() if look}
        return found if len(found) == len(looks) == count and not found.keys() & set(but) else None

    return wait(threads, f"{count} pods of {space.name} have made their sessions", PODS_SECONDS)


def staying(space):
    return [one for one in space.list() if "deletionTimestamp" not in one["metadata"]]


def need_counted(space, *, injected, stale):
    """The policy's status says so, soon."""
    path = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings/policy"

    def counts():
        found = space.client.get(path)
        status = found.get("status", {})
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return seen, status.get("injectedPods"), status.get("stalePods")

    assert settled(counts, (True, injected, stale), STATUS_SECONDS) == (True, injected, stale)


def need_named(space, *, stale):
    """`raddle explain` says of these pods that they are stale, and not of the others."""
    for one in staying(space):
        status, text = pods.explained(space, one)
        assert status == 0, text
        named = json.loads(text)["staleAgainst"]
        assert named == ("InferenceThreading/policy" if one["metadata"]["name"] in stale else None)


def test_a_container_that_loses_cpus_in_place_keeps_its_threads_and_its_next_start_gets_what_there_is(
    guest, record_property
):
    (container,) = RESIZED.containers
    before, after = container.threads, 1
    with pods.governed(guest, "resize") as space:
        pods.wait_for_shim(space, RESIZED.manifest(space.name))
        with pods.running(space, RESIZED) as found:
            one = found[GUEST]
            assert pods.look(space, one)["threads"] == before
            change = {"spec": {"containers": [{"name": container.name, "resources": {"limits": {"cpu": str(after)}}}]}}
            patch = ["--subresource", "resize", "--patch", json.dumps(change)]
            space.cluster.kubectl("-n", space.name, "patch", "pod", RESIZED.name, *patch)
            effective = wait(lambda: shown(space, one, quota=after), "the kernel has the new limit", PATIENCE_SECONDS)
            assert effective["intraOp"] == after
            assert effective["because"].get("intraOp") == f"planned {before}, cut to quota {after}"
            assert (pods.look(space, one)["threads"], restarts(space)) == (before, 0)
            assert settled(lambda: resized_pods(guest.cluster), 1, STATUS_SECONDS) == 1
            # The kubelet starts it again under the same plan.
            status, said = pods.inside(space, one, container.name, "/bin/busybox", "kill", "1")
            assert status == 0, said
            wait(lambda: restarts(space) == 1, "the container was started again", PATIENCE_SECONDS)
            look = wait(lambda: pods.look(space, one), "it has made its session", PATIENCE_SECONDS)
            assert look["threads"] == after
            # The difference to the plan is explained in its mark.
            status, text = pods.explained(space, one, "--live")
            assert (status, f"cut to quota {after}" in text) == (0, True), text
            assert verdict.error_lines(pods.log(space, one)) == []
            assert space.get(RESIZED.name)["status"]["qosClass"] == RESIZED.qos
    record_property(
        "e2e resize", f"planned {before}, resized to {after} CPU: {before} threads, {after} after a restart"
    )


def shown(space, one, *, quota):
    """What `python -m raddle` inside says that a session gets, once it has this quota."""
    status, text = pods.inside(space, one, "app", *SHOW)
    found = {} if status else json.loads(text)
    return found.get("effective") if found.get("budget", {}).get("quotaCPUs") == quota else None


def restarts(space):
    (status,) = space.get(RESIZED.name)["status"]["containerStatuses"]
    return status["restartCount"] if status["ready"] else -1


def resized_pods(cluster):
    """How many pods the controllers count as resized."""
    path, texts = f"/api/v1/namespaces/{release.NAMESPACE}/pods", []
    for one in cluster.client.get(path, labelSelector="app.kubernetes.io/component=controller")["items"]:
        try:
            answer = cluster.client.get(f"{path}/{one['metadata']['name']}:{CONTROLLER_PORT}/proxy/metrics")
        except ApiError:
            continue
        texts.append(answer.get("text", ""))
    return sum(
        float(count) for text in texts for count in re.findall(r"^raddle_resized_pods (\S+)$", text, re.MULTILINE)
    )
