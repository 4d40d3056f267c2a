"""The network between webhook and API server is cut, one direction of calls at a time; packets vanish, nobody is told.

By iptables on this machine's loopback. All processes here are root's, so the webhook runs in a group of its own, by
which its packets can be told from those of others to the API server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import psutil

from cluster.objects import governed_by, policy
from cluster.waiting import wait
from reliability import calls
from reliability.load import Load, refused, slowest_s, without_values
from reliability.model import Check, Result, broken_unless
from reliability.rollout import became
from reliability.world import CREATE_TIMEOUT_SECONDS, NOISE_SECONDS, WEBHOOK_GROUP, World, count_missed, pod
from unavailable import UnavailableError

CALLS: Final = 12
CUT_SECONDS: Final = 15.0


def to_webhook(world: World) -> Result:
    """The API server's packets to the webhook are dropped."""
    raddle = world.raddle
    with world.governed_namespace(raddle) as space:
        with Load(space) as load:
            load.go_on(CALLS)
            host, port = calls.address(raddle.cluster.client)
            with dropped(["--destination", host, "--dport", str(port)]):
                cut_s = time.monotonic()
                load.go_on(CALLS)
                healed_s = time.monotonic()
            load.go_on(CALLS, with_values=True)
            ends_s = [one.at_s + one.seconds for one in load.calls if one.has_values]
            first_s = min(end_s for end_s in ends_s if end_s > healed_s)
        during = [one for one in load.calls if cut_s <= one.at_s < healed_s - slowest_s(load.calls)]
        missed = without_values(load.calls)
        counted = count_missed(space, len(missed))
    figures = {
        "pods created": str(len(load.calls)),
        "creates refused": str(len(refused(load.calls))),
        "slowest create": f"{slowest_s(load.calls):.1f} s",
        "without values during the cut": f"{len(without_values(during))} of {len(during)}",
        "missed, and counted": f"{len(missed)}, {counted}",
        "first pod with values after it": f"{first_s - healed_s:.1f} s",
    }
    broken = broken_unless(
        no_create_was_refused=not refused(load.calls),
        the_cut_was_felt=len(without_values(during)) == len(during) > 0,
        no_create_took_longer_than_the_timeout=slowest_s(load.calls) < CREATE_TIMEOUT_SECONDS + NOISE_SECONDS,
        every_missed_pod_is_counted=counted == len(missed),
    )
    return Result(figures, broken)


def from_webhook(world: World) -> Result:
    """The webhook's packets to the API server are dropped, and the server's to it; reviews still come through."""
    raddle = world.raddle
    with world.governed_namespace(raddle) as space:
        server = urlsplit(raddle.cluster.server).port
        own = [["--match", "owner", "--gid-owner", str(WEBHOOK_GROUP), "--dport", str(server)]]
        others = [["--sport", str(server), "--dport", str(port)] for port in _ports_to(raddle.webhook.pid, server)]
        with dropped(*own, *others):
            cut_s = time.monotonic()
            space.store(policy("later", priority=1))
            names = [space.create(pod(f"cut-{number}"))["metadata"]["name"] for number in range(CALLS)]
            bound = [space.bound(name) for name in names]
            got = became(bound)
            slowest_bound_s = time.monotonic() - cut_s
            time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - cut_s)))
            # Of the policies: one was changed during the cut.
            age_s = raddle.webhook.metric("raddle_webhook_cache_age_seconds", kind="InferenceThreading")
            ready = raddle.webhook.is_ready()
            policies = {governed_by(space.probe(pod("probe"))) for _ in range(3)}
            cut_for_s = time.monotonic() - cut_s
        healed_s = time.monotonic()
        wait(
            lambda: governed_by(space.probe(pod("probe"))) == "InferenceThreading/later",
            "the webhook follows the policies again",
            90,
        )
        again_s = time.monotonic() - healed_s
        later = space.bound(space.create(pod("later"))["metadata"]["name"])
    figures = {
        "pods created": str(len(names)),
        "with safe values": str(got["safe"]),
        "with their node's values": str(got["node"]),
        "without values": str(got["none"]),
        "all created and bound in": f"{slowest_bound_s:.1f} s",
        "cut for": f"{cut_for_s:.0f} s",
        "age of the policies' cache by metric": f"{age_s:.0f} s",
        "follows policies again after": f"{again_s:.1f} s",
    }
    broken = broken_unless(
        every_pod_has_values=got["none"] == 0,
        the_cut_was_felt=got["safe"] > 0 and policies == {"InferenceThreading/policy"},
        the_metric_tells_the_age_of_what_is_known=age_s >= CUT_SECONDS,
        the_webhook_stays_ready=ready,
        pods_have_their_nodes_values_again=became([later])["node"] == 1,
    )
    return Result(figures, broken)


@contextlib.contextmanager
def dropped(*rules: Sequence[str]) -> Iterator[None]:
    """Drop the TCP packets that any of these iptables matches describes, until the end of the block.

    Raises UnavailableError without root or iptables.
    """
    if os.geteuid() != 0 or shutil.which("iptables") is None:
        raise UnavailableError("no network can be cut here: that takes root and iptables")
    with contextlib.ExitStack() as stack:
        for rule in rules:
            # Before it is there: Ctrl-C may come between the two, and to delete what is not there harms nobody.
            stack.callback(_iptables, "--delete", rule)
            _iptables("--insert", rule)
        yield


def _iptables(verb: str, rule: Sequence[str]) -> None:
    command = ["iptables", "--wait", verb, "OUTPUT", "--protocol", "tcp", *rule, "--jump", "DROP"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode and verb == "--insert":
        raise UnavailableError(f"no network can be cut here: {done.stderr.strip()}")


def _ports_to(pid: int | None, server: int | None) -> list[int]:
    """This end's ports of a process's connections to a port."""
    connections = psutil.Process(pid).net_connections("tcp")
    return [one.laddr.port for one in connections if one.raddr and one.raddr.port == server]


CHECKS: Final = (
    Check(
        "network-cut-to-webhook",
        "The network from the API server to the webhook is cut under load: packets vanish.",
        f"A create takes its timeout ({CREATE_TIMEOUT_SECONDS} s) and below {NOISE_SECONDS} s more, none is refused,"
        " the missed are counted, and values come again by themselves.",
        to_webhook,
    ),
    Check(
        "network-cut-from-webhook",
        "The network from the webhook to the API server is cut, while reviews still come through.",
        "Pods get values by the last known policies, safe ones at binding; the metric tells the caches' age;"
        " the webhook follows again by itself.",
        from_webhook,
    ),
)
