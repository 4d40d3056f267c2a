"""The webhook as a process of its own beside a real API server and scheduler: bursts, a stop, certificates."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

import machines
from cluster import Cluster, namespaces
from cluster.local_raddle import NAMESPACE, LocalRaddle
from cluster.objects import container, injected, plan_of, pod, policy
from cluster.waiting import wait
from raddle_operator.certificates import CertificateSettings, ensure
from raddle_operator.injection.binding import BindingOutcome
from raddle_operator.kube import MUTATING_WEBHOOKS, SECRETS, Kube

BURST, THREADS = 60, 6


@pytest.fixture(scope="module")
def own():
    """A cluster that no other test sees, since the webhook is stopped here: one node of 16 cores."""
    with Cluster() as cluster, LocalRaddle(cluster, values={"certificates": {"source": "Raddle"}}) as raddle:
        raddle.register_machine("big", machines.path("2s16c32t"))
        raddle.webhook.wait(
            lambda: raddle.webhook.metric("raddle_webhook_cache_objects", kind="NodeCPUTopology") == 1,
            "the webhook knows the node",
        )
        yield raddle


@pytest.fixture
def space(own, request):
    made = namespaces.made(own, f"test-{abs(hash(request.node.name)) % 10**8}")
    made.apply(policy())
    yield made
    for left in made.list():
        made.delete(left["metadata"]["name"])


def small(name, **more):
    return pod(container(request="10m", cpu=None), name=name, **more)


def outcomes(raddle):
    count = raddle.webhook.metric
    return {str(one): int(count("raddle_webhook_bindings_total", outcome=one)) for one in BindingOutcome}


def test_every_pod_of_a_burst_gets_its_nodes_numbers(own, space):
    """Bindings overtake the watch now and then; those are waited for, or asked for."""
    before = outcomes(own)
    path = f"/api/v1/namespaces/{space.name}/pods"

    def create(first):
        client = own.cluster.new_client()  # one per thread
        try:
            for number in range(first, BURST, THREADS):
                client.post(path, small(f"p{number}"))
        finally:
            client.close()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(create, range(THREADS)))
    bound = [space.bound(f"p{n}") for n in range(BURST)]
    assert [plan_of(one).node for one in bound] == ["big"] * BURST
    after = outcomes(own)
    assert after["NodeSpecific"] - before["NodeSpecific"] == BURST
    assert own.webhook.metric("raddle_webhook_fail_open_total") == 0
    requests = own.webhook.metric("raddle_webhook_requests_total", path="binding")
    assert sum(after.values()) == requests, "every binding has a known outcome"


def test_a_pod_that_raddle_leaves_alone_is_bound_without_noticeable_delay(own, space):
    before = outcomes(own)["NotInjected"]
    space.create(small("alone", labels={"raddle.dev/inject": "disabled"}))
    assert not injected(space.bound("alone"))
    assert outcomes(own)["NotInjected"] == before + 1
    seconds = own.webhook.metric("raddle_webhook_request_duration_seconds_bucket", path="binding", le="0.2")
    assert seconds == own.webhook.metric("raddle_webhook_request_duration_seconds_count", path="binding")


def test_a_stop_lets_go_in_order(own, space):
    own.webhook.stop()
    try:
        assert "stopped" in own.webhook.log.splitlines()[-1]
        assert "Traceback" not in own.webhook.log
    finally:
        own.webhook.start().wait_ready()


async def test_the_issuers_certificates_are_trusted_with_the_charts_rights_and_change_without_a_gap(own, space):
    """By the controller's own token: RBAC lets it write that one Secret and those bundles."""
    tls = own.cluster.directory / "raddle-tls"
    settings = CertificateSettings(namespace=NAMESPACE, extra_names=("127.0.0.1", "localhost"))

    async def serve_what_the_secret_holds(kube, loads):
        secret = await kube.get(SECRETS, settings.secret, NAMESPACE)
        for name in ("tls.crt", "tls.key"):
            (tls / name).write_bytes(base64.b64decode(secret["data"][name]))
        own.webhook.wait(
            lambda: own.webhook.metric("raddle_webhook_certificate_loads_total", outcome="loaded") >= loads,
            "the webhook has loaded the certificate",
        )

    def gets_values():
        return injected(space.probe(small("probe")))

    async with await Kube.from_settings(own.cluster.directory / "controller.kubeconfig") as kube:
        before = own.webhook.metric("raddle_webhook_certificate_loads_total", outcome="loaded")
        await ensure(kube, settings)
        await serve_what_the_secret_holds(kube, before + 1)
        wait(gets_values)
        bundles = (await admin_get(own, MUTATING_WEBHOOKS, "raddle"))["webhooks"]
        assert len({webhook["clientConfig"]["caBundle"] for webhook in bundles}) == 1
        merge = {"data": {"tls.crt": ""}}
        await kube.patch(SECRETS, settings.secret, merge, NAMESPACE, field_manager="raddle-controller")
        await ensure(kube, settings)
        for _ in range(3):
            assert gets_values(), "the old leaf serves on, by the same authority"
        await serve_what_the_secret_holds(kube, before + 2)
        assert gets_values()


async def admin_get(own, resource, name):
    async with await Kube.from_settings(own.cluster.kubeconfig) as kube:
        return await kube.get(resource, name)
