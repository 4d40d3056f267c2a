"""Two webhooks behind a Service, under load: one is killed, one stopped, the certificate and its authority change.

And the leader's clock jumps: a day back, then months ahead, so far that it renews a certificate, then right again.
libfaketime gives the process another time of day; its monotonic clock goes on, as a machine's does when its clock is
set. The webhooks, the API server and the second controller keep the right time.
"""

import base64
import datetime as dt
import time
from pathlib import Path

import pytest
from support.reliability.installed import (
    CONFIGURATION_PATH,
    CREATE_TIMEOUT_SECONDS,
    NOISE_SECONDS,
    LeaderWatch,
    count_missed,
    failed_open,
    govern,
)
from support.reliability.load import Load, refused, slowest_s, without_values
from support.reliability.replicas import SECRET_PATH, Handshakes, replicated, tls_secret

from cluster import namespaces
from cluster.local_raddle import NAMESPACE
from cluster.waiting import wait
from raddle_operator import certificates
from unavailable import UnavailableError

CALLS = 50  # before and after each event
# Less than certificates.AUTHORITY_RENEWED_BEFORE: the controller replaces it as soon as it looks.
AUTHORITY_LEFT = dt.timedelta(days=100)


@pytest.mark.failure(
    "replica-killed",
    "One of two webhooks is killed (SIGKILL) under load and comes back; then the other one is stopped in order.",
    "No create is refused. Pods are missed, and counted, only until the killed one's endpoint is gone and the calls"
    " under way have ended; an orderly stop is noticed by no pod.",
)
def test_a_killed_replica_misses_pods_until_its_endpoint_is_gone_and_a_stopped_one_none(figures):
    with replicated() as replicas, namespaces.fresh(replicas.raddle, "check") as space:
        govern(space)
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
        calls, missed = load.calls, without_values(load.calls)
        counted = count_missed(space, len(missed))
        given_up = failed_open(space.client)
    early = without_values(calls, until_s=killed_s - CREATE_TIMEOUT_SECONDS)
    after_kill = without_values(calls, since_s=killed_s - CREATE_TIMEOUT_SECONDS, until_s=stopping_s)
    late = without_values(calls, since_s=gone_s + CREATE_TIMEOUT_SECONDS, until_s=stopping_s)
    after_stop = without_values(calls, since_s=stopping_s)
    figures |= {
        "pods created under load": len(calls),
        "creates refused": len(refused(calls)),
        "slowest create": f"{slowest_s(calls):.2f} s",
        "endpoint gone after SIGKILL": f"{gone_s - killed_s:.1f} s",
        "without values after SIGKILL, all counted": f"{len(after_kill)}, {counted}",
        f"without values from {CREATE_TIMEOUT_SECONDS} s after the endpoint's end on": len(late),
        "without values around an orderly stop": len(after_stop),
        "calls that failed open by the API server's count": given_up,
    }
    assert refused(calls) == []
    assert slowest_s(calls) < CREATE_TIMEOUT_SECONDS + NOISE_SECONDS
    assert early == late == after_stop == []
    assert counted == len(missed)


@pytest.mark.failure(
    "certificate-rotated",
    "The authority and the serving certificate are replaced by the controller, under load.",
    "No call fails, no pod is missed, and each new connection verifies with the bundle that is published then.",
)
def test_a_new_authority_and_its_certificate_are_noticed_by_no_call_and_no_pod(figures):
    now = dt.datetime.now(dt.UTC)
    old = certificates.new_authority(now - certificates.AUTHORITY_LIFE + AUTHORITY_LEFT)
    with replicated(secret=tls_secret(old, now)) as replicas, namespaces.fresh(replicas.raddle, "check") as space:
        began_s = time.monotonic()
        govern(space)

        def loads():
            return replicas.metric("raddle_webhook_certificate_loads_total", outcome="loaded")

        def authorities():
            return base64.b64decode(space.client.get(SECRET_PATH)["data"]["ca.crt"])

        loaded = loads()
        with Load(space) as load, Handshakes(replicas) as handshakes:
            load.go_on(CALLS)
            wait(lambda: authorities().count(b"BEGIN") == 2, "there is a second authority")
            wait(lambda: not authorities().startswith(old.pem), "the new one signs")
            settle_s = certificates.SETTLE.total_seconds() + 30
            wait(lambda: loads() >= loaded + 2, "both webhooks have loaded the new leaf", settle_s)
            took_s = time.monotonic() - began_s
            load.go_on(CALLS)
            handshakes.go_on(CALLS)
        calls, missed = load.calls, without_values(load.calls)
        bundles = {one["clientConfig"]["caBundle"] for one in space.client.get(CONFIGURATION_PATH)["webhooks"]}
        given_up = failed_open(space.client)
    figures |= {
        "pods created under load": len(calls),
        "creates refused": len(refused(calls)),
        "pods without values": len(missed),
        "calls that failed open by the API server's count": given_up,
        "slowest create": f"{slowest_s(calls):.2f} s",
        "new connections verified with the published bundle": handshakes.done,
        "of them failed": len(handshakes.failed),
        "different leaves served": len(handshakes.leaves),
        "authorities trusted at the end": ", ".join(str(base64.b64decode(one).count(b"BEGIN")) for one in bundles),
        "from start to the new leaf": f"{took_s:.0f} s",
    }
    assert refused(calls) == []
    assert missed == []
    assert given_up == 0
    assert handshakes.failed == []
    assert len(handshakes.leaves) == 2, "the old and the new leaf were to be served"


# --- the clock --------------------------------------------------------------------------------------------------------

LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/raddle-controller"
LEASE_SECONDS = 15
# So far ahead the leaf, which lives for 90 days, is to be renewed (30 days before its end).
BACK_DAYS, AHEAD_DAYS = -1, 70
INSTALLED = dt.timedelta(days=10)  # so long ago: then a day back the certificates were valid too
CLOCK_CALLS = 20
# Verified connections in a row after which the certificate counts as good again: both replicas, ten times.
GOOD = 20


class Clock:
    """The time of day of a process that is started with `prefix`: right at first."""

    def __init__(self, folder):
        places = [Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")]
        libraries = [path for place in places for path in place.glob("**/faketime/libfaketimeMT.so.1")]
        if not libraries:
            raise UnavailableError("libfaketime is not installed (Debian's package libfaketime)")
        self._file = folder / "offset"
        self.set(0)
        settings = {"LD_PRELOAD": libraries[0], "FAKETIME_TIMESTAMP_FILE": self._file, "FAKETIME_NO_CACHE": 1}
        settings |= {"FAKETIME_DONT_FAKE_MONOTONIC": 1, "DONT_FAKE_MONOTONIC": 1}
        self.prefix = ["env", *(f"{name}={value}" for name, value in settings.items())]

    def set(self, days):
        """Put it so far ahead; a reader never sees half of it."""
        new = self._file.with_name("new")
        new.write_text(f"{days:+d}d\n")
        new.replace(self._file)


@pytest.mark.failure(
    "clock-jump",
    "The leader's clock jumps a day back, then 70 days ahead, where it renews a certificate, then is right again.",
    "It goes on leading alone and no create is refused. New connections fail by a certificate of the future until"
    " the clock is right, when it is replaced; pods missed meanwhile are counted.",
)
def test_a_leader_whose_clock_jumps_leads_on_and_what_it_signed_in_the_future_is_replaced(tmp_path, figures):
    clock, then = Clock(tmp_path), dt.datetime.now(dt.UTC) - INSTALLED
    secret = tls_secret(certificates.new_authority(then), then)
    with (
        replicated(secret=secret, prefixes={"controller": clock.prefix}) as replicas,
        namespaces.fresh(replicas.raddle, "check") as space,
    ):
        govern(space)

        def transitions():
            return space.client.get(LEASE_PATH)["spec"].get("leaseTransitions") or 0

        first, second = space.raddle.controller, space.raddle.controller_process("second").start().wait_ready()
        before = transitions()
        with (
            Load(space, connections=1) as load,
            Handshakes(replicas) as handshakes,
            LeaderWatch(first, second) as leaders,
        ):
            clock.set(BACK_DAYS)
            time.sleep(LEASE_SECONDS + 2)
            back = len(handshakes.failed), len(without_values(load.calls))
            clock.set(AHEAD_DAYS)
            wait(lambda: len(handshakes.failed) > back[0], "a certificate of the future is served", 120)
            load.go_on(CLOCK_CALLS)
            clock.set(0)
            right_s = time.monotonic()
            handshakes.good_in_a_row = 0
            wait(lambda: handshakes.good_in_a_row >= GOOD, "new connections are good again", 120)
            mended_s = time.monotonic() - right_s
            load.go_on(CLOCK_CALLS, with_values=True)
        missed = without_values(load.calls)
        counted = count_missed(space, len(missed))
        changes = transitions() - before
    figures |= {
        "jumps of the leader's clock": f"{BACK_DAYS} day, +{AHEAD_DAYS} days, right",
        "pods created": len(load.calls),
        "creates refused": len(refused(load.calls)),
        "looks at both controllers": leaders.looks,
        "changes of the leader": changes,
        "new connections that failed, a day back": back[0],
        "... while the certificate was of the future": len(handshakes.failed) - back[0],
        "pods without values, all counted": f"{len(missed)}, {counted}",
        "good again after the clock was right": f"{mended_s:.0f} s",
    }
    assert refused(load.calls) == []
    assert changes == 0
    assert leaders.looks > 0
    assert leaders.both == 0
    assert back == (0, 0)
    assert counted == len(missed)
