"""What policies' status and the webhook must say, found from the cluster's objects without Raddle's own code.

The policies here are as simple as that takes: each selects the pods whose label `app` is its name and caps their
threads, so that pods, the webhook's answers and the status can be compared with the spec by hand.
"""

import http.client

from cluster import ApiError
from cluster.objects import governed_by, injected, policy, threads
from cluster.waiting import settled
from support.reliability.installed import pod

SETTLE_S = 60.0


def capped(name, most):
    """A policy for the pods of the app `name`, with at most so many threads."""
    return policy(name, podSelector={"matchLabels": {"app": name}}, threads={"maxIntraOp": most})


def of_app(app, name):
    """A pod of an app."""
    return pod(name, labels={"app": app})


def policies(space):
    """The namespace's policies."""
    return space.client.get(f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings")["items"]


def status_mistakes(one, pods):
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


def webhook_mistakes(space, one):
    """Yield a sentence where the webhook does not give a policy to its pods as it is now."""
    name, most = one["metadata"]["name"], one["spec"]["threads"]["maxIntraOp"]
    answer = space.probe(of_app(name, "probe"))
    told = governed_by(answer), threads(answer)
    if told != (f"InferenceThreading/{name}", most):
        yield f"a pod of {name} is given {told}, it must be {most} threads"


def settle(space, *, status=True):
    """Wait until the webhook, and unless told not to every status, is right. A server that is away is waited for."""

    def mistakes():
        try:
            pods = space.list()
            return [
                sentence
                for one in policies(space)
                for sentence in (*webhook_mistakes(space, one), *(status_mistakes(one, pods) if status else ()))
            ]
        except (ApiError, OSError, http.client.HTTPException) as error:
            return [f"the API server does not answer: {error!r}"]

    wrong = settled(mistakes, [], SETTLE_S)
    assert wrong == [], f"not right within {SETTLE_S:g} s"
