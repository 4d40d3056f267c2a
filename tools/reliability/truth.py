"""What policies' status and the webhook must say, found from the cluster's objects without Raddle's own code.

The policies here are as simple as that takes: each selects the pods whose label `app` is its name and caps their
threads, so that pods, the webhook's answers and the status can be compared with the spec by hand.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cluster import ApiError
from cluster.namespaces import TestNamespace
from cluster.objects import governed_by, injected, policy, threads
from cluster.waiting import NotInTimeError, wait
from reliability.model import BrokenError
from reliability.world import pod

SETTLE_S: Final = 60.0


def capped(name: str, most: int) -> dict[str, Any]:
    """A policy for the pods of the app `name`, with at most so many threads."""
    return policy(name, podSelector={"matchLabels": {"app": name}}, threads={"maxIntraOp": most})


def of_app(app: str, name: str) -> dict[str, Any]:
    """A pod of an app."""
    return pod(name, labels={"app": app})


def policies(space: TestNamespace) -> list[dict[str, Any]]:
    """Return the namespace's policies."""
    return list(space.client.get(f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings")["items"])


def status_mistakes(space: TestNamespace) -> list[str]:
    """Return a sentence for each policy whose status does not say what its pods are like."""
    pods = space.list()
    return [sentence for one in policies(space) for sentence in of_policy(one, pods)]


def of_policy(one: Mapping[str, Any], pods: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence where a policy's status does not say what these pods, of all apps, are like."""
    name, status = one["metadata"]["name"], one.get("status", {})
    mine = [pod for pod in pods if pod["metadata"]["labels"].get("app") == name]
    given = [pod for pod in mine if injected(pod)]
    most = one["spec"]["threads"]["maxIntraOp"]
    wanted = {
        "observedGeneration": one["metadata"]["generation"],
        "matchedPods": len(mine),
        "injectedPods": len(given),
        "stalePods": sum(threads(pod) != most for pod in given),
    }
    told = {key: status.get(key) for key in wanted}
    if told != wanted:
        yield f"the status of {name} says {told}, it must be {wanted}"


def webhook_mistakes(space: TestNamespace) -> list[str]:
    """Return a sentence for each policy that the webhook does not give to its pods as it is now."""
    found = []
    for one in policies(space):
        name, most = one["metadata"]["name"], one["spec"]["threads"]["maxIntraOp"]
        answer = space.probe(of_app(name, "probe"))
        told = governed_by(answer), threads(answer)
        if told != (f"InferenceThreading/{name}", most):
            found.append(f"a pod of {name} is given {told}, it must be {most} threads")
    return found


def settle(space: TestNamespace, *, status: bool = True) -> None:
    """Wait until the webhook, and unless told not to every status, is right. Raises BrokenError with what is not.

    An API server that does not answer yet is waited for.
    """
    mistakes: list[str] = []

    def right() -> bool:
        try:
            mistakes[:] = [*webhook_mistakes(space), *(status_mistakes(space) if status else ())]
        except (ApiError, OSError, http.client.HTTPException) as error:
            mistakes[:] = [f"the API server does not answer: {error!r}"]
        return not mistakes

    try:
        wait(right, "", SETTLE_S)
    except NotInTimeError:
        raise BrokenError(f"not right within {SETTLE_S:g} s: {'; '.join(mistakes)}") from None
