"""The network between webhook and API server is cut, one direction of calls at a time; packets vanish, nobody is told.

By iptables on this machine's loopback. All processes here are root's, so the webhook runs in a group of its own, by
which its packets can be told from those of others to the API server.
"""

import contextlib
import os
import shutil
import subprocess
import time
from urllib.parse import urlsplit

import psutil
import pytest
from support.attackers import webhook_address
from support.reliability.installed import CREATE_TIMEOUT_SECONDS, NOISE_SECONDS, became, count_missed, pod
from support.reliability.load import Load, refused, slowest_s, without_values

from cluster.objects import governed_by, policy
from cluster.waiting import wait
from unavailable import UnavailableError

CALLS = 12
CUT_SECONDS = 15.0


@pytest.mark.failure(
    "network-cut-to-webhook",
    "The network from the API server to the webhook is cut under load: packets vanish.",
    f"A create takes its timeout ({CREATE_TIMEOUT_SECONDS} s) and below {NOISE_SECONDS} s more, none is refused,"
    " the missed are counted, and values come again by themselves.",
)
def test_a_webhook_that_no_review_reaches_delays_pods_and_refuses_none(raddle, governed, figures):
    with Load(governed) as load:
        load.go_on(CALLS)
        host, port = webhook_address(raddle.cluster.client)
        with dropped(["--destination", host, "--dport", str(port)]):
            cut_s = time.monotonic()
            load.go_on(CALLS)
            healed_s = time.monotonic()
        load.go_on(CALLS, with_values=True)
        ends_s = [one.at_s + one.seconds for one in load.calls if one.has_values]
        first_s = min(end_s for end_s in ends_s if end_s > healed_s)
    during = [one for one in load.calls if cut_s <= one.at_s < healed_s - slowest_s(load.calls)]
    missed = without_values(load.calls)
    counted = count_missed(governed, len(missed))
    figures |= {
        "pods created": len(load.calls),
        "creates refused": len(refused(load.calls)),
        "slowest create": f"{slowest_s(load.calls):.1f} s",
        "without values during the cut": f"{len(without_values(during))} of {len(during)}",
        "missed, and counted": f"{len(missed)}, {counted}",
        "first pod with values after it": f"{first_s - healed_s:.1f} s",
    }
    assert refused(load.calls) == []
    assert len(without_values(during)) == len(during) > 0, "the cut was to be felt"
    assert slowest_s(load.calls) < CREATE_TIMEOUT_SECONDS + NOISE_SECONDS
    assert counted == len(missed)


@pytest.mark.failure(
    "network-cut-from-webhook",
    "The network from the webhook to the API server is cut, while reviews still come through.",
    "Pods get values by the last known policies, safe ones at binding; the metric tells the caches' age;"
    " the webhook follows again by itself.",
)
def test_a_webhook_that_hears_nothing_goes_on_with_what_it_knew_and_says_how_old_that_is(
    raddle, governed, webhook_group, figures
):
    space, server = governed, urlsplit(raddle.cluster.server).port
    own = [["--match", "owner", "--gid-owner", str(webhook_group), "--dport", str(server)]]
    others = [["--sport", str(server), "--dport", str(port)] for port in ports_to(raddle.webhook.pid, server)]
    with dropped(*own, *others):
        cut_s = time.monotonic()
        space.store(policy("later", priority=1))
        names = [space.create(pod(f"cut-{number}"))["metadata"]["name"] for number in range(CALLS)]
        got = became([space.bound(name) for name in names])
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
    figures |= {
        "pods created": len(names),
        "with safe values": got["safe"],
        "with their node's values": got["node"],
        "without values": got["none"],
        "all created and bound in": f"{slowest_bound_s:.1f} s",
        "cut for": f"{cut_for_s:.0f} s",
        "age of the policies' cache by metric": f"{age_s:.0f} s",
        "follows policies again after": f"{again_s:.1f} s",
    }
    assert got["none"] == 0
    assert got["safe"] > 0, "the cut was to be felt"
    assert policies == {"InferenceThreading/policy"}, "the cut was to be felt"
    assert age_s >= CUT_SECONDS
    assert ready
    assert became([later])["node"] == 1


@contextlib.contextmanager
def dropped(*rules):
    """Drop the TCP packets that any of these iptables matches describes, until the end of the block."""
    if os.geteuid() != 0 or shutil.which("iptables") is None:
        raise UnavailableError("no network can be cut here: that takes root and iptables")
    with contextlib.ExitStack() as stack:
        for rule in rules:
            # Before it is there: Ctrl-C may come between the two, and to delete what is not there harms nobody.
            stack.callback(iptables, "--delete", rule)
            iptables("--insert", rule)
        yield


def iptables(verb, rule):
    command = ["iptables", "--wait", verb, "OUTPUT", "--protocol", "tcp", *rule, "--jump", "DROP"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode and verb == "--insert":
        raise UnavailableError(f"no network can be cut here: {done.stderr.strip()}")


def ports_to(pid, server):
    """This end's ports of a process's connections to a port."""
    connections = psutil.Process(pid).net_connections("tcp")
    return [one.laddr.port for one in connections if one.raddr and one.raddr.port == server]
