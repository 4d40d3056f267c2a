"""Two webhooks behind a Service, under load: one is killed, one stopped, the certificate and its authority change."""

from __future__ import annotations

import base64
import datetime as dt
import time
from collections.abc import Mapping
from typing import Any, Final

from cluster.waiting import wait
from raddle_operator import certificates
from reliability import calls
from reliability.certs import Handshakes, secret
from reliability.load import Load, refused, slowest_s, without_values
from reliability.model import Check, Result, broken_unless
from reliability.replicas import SECRET_PATH, replicated
from reliability.world import CONFIGURATION_PATH, CREATE_TIMEOUT_SECONDS, NOISE_SECONDS, World, count_missed

CALLS: Final = 50
"""Before and after each event."""
AUTHORITY_LEFT: Final = dt.timedelta(days=100)
"""Less than certificates.AUTHORITY_RENEWED_BEFORE: the controller replaces it as soon as it looks."""


def one_killed(world: World) -> Result:
    """One replica is killed and comes back, then the other one is stopped in order and comes back."""
    with replicated(world) as (raddle, replicas), world.governed_namespace(raddle) as space:
        with Load(space) as load:
            load.go_on(CALLS)
            killed_s = time.monotonic()
            replicas[0].kill()
            replicas.until_endpoints(1)
            gone_s = time.monotonic()
            load.go_on(CALLS)
            replicas[0].start()
            replicas.until_endpoints(2)
            load.go_on(CALLS)
            stopping_s = time.monotonic()
            replicas.stop_in_order(1)
            load.go_on(CALLS)
            replicas[1].start()
            replicas.until_endpoints(2)
            load.go_on(CALLS)
        missed = without_values(load.calls)
        counted = count_missed(space, len(missed))
        failed_open = calls.failed_open(raddle.cluster.client)
    after_kill = without_values(load.calls, since_s=killed_s - CREATE_TIMEOUT_SECONDS, until_s=stopping_s)
    late = without_values(load.calls, since_s=gone_s + CREATE_TIMEOUT_SECONDS, until_s=stopping_s)
    after_stop = without_values(load.calls, since_s=stopping_s)
    figures = {
        "pods created under load": str(len(load.calls)),
        "creates refused": str(len(refused(load.calls))),
        "slowest create": f"{slowest_s(load.calls):.2f} s",
        "endpoint gone after SIGKILL": f"{gone_s - killed_s:.1f} s",
        "without values after SIGKILL, all counted": f"{len(after_kill)}, {counted}",
        f"without values from {CREATE_TIMEOUT_SECONDS} s after the endpoint's end on": str(len(late)),
        "without values around an orderly stop": str(len(after_stop)),
        "calls that failed open by the API server's count": str(failed_open),
    }
    broken = broken_unless(
        no_create_was_refused=not refused(load.calls),
        no_create_took_longer_than_the_timeout=slowest_s(load.calls) < CREATE_TIMEOUT_SECONDS + NOISE_SECONDS,
        pods_created_before_the_kill_had_values=not without_values(
            load.calls, until_s=killed_s - CREATE_TIMEOUT_SECONDS
        ),
        every_pod_has_values_once_the_endpoint_is_gone=not late,
        an_orderly_stop_is_noticed_by_no_pod=not after_stop,
        every_missed_pod_is_counted=counted == len(missed),
    )
    return Result(figures, broken)


def rotated(world: World) -> Result:
    """The authority nears its end: the controller makes another, publishes it, and signs the leaf again."""
    now = dt.datetime.now(dt.UTC)
    old = certificates.new_authority(now - certificates.AUTHORITY_LIFE + AUTHORITY_LEFT)
    with replicated(world, rotating=True, secret=secret(old, now)) as (raddle, replicas):
        client = raddle.cluster.client
        began_s = time.monotonic()
        with world.governed_namespace(raddle) as space:
            loads = replicas.metric("raddle_webhook_certificate_loads_total", outcome="loaded")
            with Load(space) as load, Handshakes(raddle, replicas) as handshakes:
                load.go_on(CALLS)
                wait(lambda: _authorities(client.get(SECRET_PATH)) == 2, "there is a second authority")
                wait(lambda: _signer(client.get(SECRET_PATH)) != old.pem, "the new one signs")
                settle_s = certificates.SETTLE.total_seconds() + 30
                wait(
                    lambda: replicas.metric("raddle_webhook_certificate_loads_total", outcome="loaded") >= loads + 2,
                    "both webhooks have loaded the new leaf",
                    settle_s,
                )
                took_s = time.monotonic() - began_s
                load.go_on(CALLS)
                handshakes.go_on(CALLS)
            missed = without_values(load.calls)
            bundles = [one["clientConfig"]["caBundle"] for one in client.get(CONFIGURATION_PATH)["webhooks"]]
            failed_open = calls.failed_open(client)
    figures = {
        "pods created under load": str(len(load.calls)),
        "creates refused": str(len(refused(load.calls))),
        "pods without values": str(len(missed)),
        "calls that failed open by the API server's count": str(failed_open),
        "slowest create": f"{slowest_s(load.calls):.2f} s",
        "new connections verified with the published bundle": str(handshakes.done),
        "of them failed": str(len(handshakes.failed)),
        "different leaves served": str(len(handshakes.leaves)),
        "authorities trusted at the end": ", ".join(sorted({str(_count(one)) for one in bundles})),
        "from start to the new leaf": f"{took_s:.0f} s",
    }
    broken = broken_unless(
        no_create_was_refused=not refused(load.calls),
        every_pod_has_values=not missed,
        no_call_failed_open=failed_open == 0,
        no_handshake_failed=not handshakes.failed,
        old_and_new_leaf_were_both_served=len(handshakes.leaves) == 2,
    )
    return Result(figures, broken + tuple(sorted(set(handshakes.failed))[:3]))


def _count(bundle: str) -> int:
    return base64.b64decode(bundle).count(b"BEGIN CERTIFICATE")


def _authorities(found: Mapping[str, Any]) -> int:
    return _count(found["data"]["ca.crt"])


def _signer(found: Mapping[str, Any]) -> bytes:
    end = b"-----END CERTIFICATE-----\n"
    return base64.b64decode(found["data"]["ca.crt"]).partition(end)[0] + end


CHECKS: Final = (
    Check(
        "replica-killed",
        "One of two webhooks is killed (SIGKILL) under load and comes back; then the other one is stopped in order.",
        "No create is refused. Pods are missed, and counted, only until the killed one's endpoint is gone and the calls"
        " under way have ended; an orderly stop is noticed by no pod.",
        one_killed,
    ),
    Check(
        "certificate-rotated",
        "The authority and the serving certificate are replaced by the controller, under load.",
        "No call fails, no pod is missed, and each new connection verifies with the bundle that is published then.",
        rotated,
    ),
)
