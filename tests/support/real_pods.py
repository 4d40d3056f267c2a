"""Pods that really run, on the nodes of `make e2e`: their namespaces, and what is read of them."""

import contextlib
import itertools
import subprocess
import sys

from cluster import namespaces
from cluster.client import ApiError
from cluster.objects import policy
from e2e import verdict
from e2e.images import NODE_IMAGE
from e2e.scenarios import GUEST, HOST, SHOW
from e2e.waiting import wait
from raddle import env
from raddle_operator.injection.volumes import SHIM_VOLUME

SHIPPED_SECONDS = 180.0
# For what takes some of an agent's looks. It takes a hundredth of a CPU, and counts as its own what its CPU spends in
# emulating others: on the virtual node minutes may lie between two of them.
LOOKS_SECONDS = {HOST: 420.0, GUEST: 900.0}
_numbers = itertools.count(1)


@contextlib.contextmanager
def without_raddle(site, name):
    """A namespace that is not opted in."""
    with namespaces.fresh(site, f"{name}-{next(_numbers)}-stock", {}) as space:
        yield space


@contextlib.contextmanager
def governed(site, name, labels=(), **policy_spec):
    """An opted-in namespace with a policy; `policy_spec` is more of it."""
    with namespaces.fresh(site, f"{name}-{next(_numbers)}", {env.INJECT_LABEL: "enabled", **dict(labels)}) as space:
        space.store(policy(**policy_spec))
        yield space


def has_volume(one):
    return any(volume["name"] == SHIM_VOLUME for volume in one["spec"].get("volumes", []))


def wait_for_shim(space, manifest, has=has_volume):
    """Until such a pod would get Raddle's shim: the webhook hears of its ConfigMap and of the policy a moment later."""
    wait(lambda: has(space.probe(manifest)), f"pods of {space.name} get the shim", SHIPPED_SECONDS)


@contextlib.contextmanager
def running(space, scenario):
    """Node -> the scenario's pod on it, once each container has said what it sees. Gone at the end of the block."""
    manifest = scenario.manifest(space.name)
    space.client.apply(manifest)
    try:
        yield wait(lambda: answered(space, scenario), f"{manifest['kind']} has made its sessions", scenario.seconds)
    except Exception as error:
        error.add_note(space.cluster.kubectl("-n", space.name, "describe", "pods", check=False).stdout[-1500:])
        raise
    finally:
        space.client.request("DELETE", space.client.path_of(manifest), {"propagationPolicy": "Background"})
        wait(lambda: not space.list(), f"the pods of {space.name} are gone", scenario.seconds)


def answered(space, scenario):
    """Node -> a pod on it of which each container has said what it sees; None until each node has one."""
    found = {
        one["spec"]["nodeName"]: one
        for one in space.list()
        if one["spec"].get("nodeName") and all(look(space, one, container.name) for container in scenario.containers)
    }
    return found if set(found) == set(scenario.nodes) else None


def look(space, one, container="app"):
    """What the application in a container has printed, None where it has not come so far."""
    return verdict.sample(log(space, one, container))


def log(space, one, container="app"):
    """A container's log, "" where it has not started."""
    try:
        return str(space.client.get(f"{space.pods_path}/{one['metadata']['name']}/log", container=container)["text"])
    except (ApiError, KeyError):
        return ""


def inside(space, one, container, *command):
    """Exit status and output of a command in a container."""
    arguments = ["-n", space.name, "exec", one["metadata"]["name"], "-c", container, "--", *command]
    done = space.cluster.kubectl(*arguments, check=False)
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def explained(space, one, *options):
    """Exit status and output of `raddle explain` of a pod, as JSON."""
    command = [sys.executable, "-m", "raddle_operator", "explain", *options, one["metadata"]["name"], "-o", "json"]
    environ = space.cluster.environment()
    done = subprocess.run([*command, "-n", space.name], env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def seen(space, one, scenario, container):
    """What a container of the scenario's pod shows."""
    # What the shim's own program says in each of the pod's containers.
    live = explained(space, one, "--live")
    show = None if container.image == NODE_IMAGE else inside(space, one, container.name, *container.inside(SHOW))
    return verdict.Observation(log=log(space, one, container.name), show=show, live=live)
