"""The webhook's decision on a pod of namespace `ns` under one policy, and the pod as it is stored."""

import jsonpatch

from cluster import decided, objects
from raddle_operator.injection.decide import Facts, Settings
from raddle_operator.injection.volumes import ShimDelivery

ITEMS = [
    {"key": "sitecustomize.py", "path": "python/sitecustomize.py"},
    {"key": "ld.so.preload", "path": "ld.so.preload"},
]
# The architectures' items differ, so that it shows which are mounted.
SHIM = ShimDelivery(config_map="raddle-shim-0123456789", items={"x86_64": ITEMS, "aarch64": ITEMS[::-1]})
KNOWN = Facts(architectures=frozenset({"x86_64"}))


def decide(obj, spec=None, *, facts=KNOWN, shim=SHIM, door=True, opt_in="enabled", agent=""):
    policy = objects.policy("fast", "ns", **(spec or {}))
    return decided.decide(obj, policy, facts, Settings(shim=shim, door=door, agent=agent), opt_in)


def inject(obj, spec=None, **more):
    """The pod as it is stored, and the decision; a second look must find nothing to change."""
    decision = decide(obj, spec, **more)
    patched = jsonpatch.apply_patch(obj, decision.operations)
    assert decide(patched, spec, **more).operations == []
    return patched, decision


def withheld(decision, name=None):
    """(reason, detail) of whatever a container should have got and did not; of all of them, or of the one named."""
    chosen = [one for one in decision.containers if name in (None, one.name)]
    return [(skip.reason, skip.detail) for container in chosen for skip in container.withheld]
