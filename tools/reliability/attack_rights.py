"""What each account may do, asked of a real API server with the account's own token, verb by verb, and tried."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from cluster import Cluster
from cluster.local_raddle import NAMESPACE
from cluster.waiting import wait
from reliability.attackers import CREATED, FORBIDDEN, RBAC, Caller
from reliability.model import BrokenError, Check, Result
from reliability.world import World

TENANT: Final = "tenant"
ACCOUNTS: Final = ("raddle-controller", "raddle-webhook", "raddle-agent")
ROLES: Final = ("view", "edit", "admin")
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RADDLE: Final = "raddle.dev"
REVIEWS: Final = "/apis/authorization.k8s.io/v1"


class Target(NamedTuple):
    """A kind of object, or one by its name; name "" is every object of the kind."""

    group: str
    resource: str
    subresource: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return it as the golden file writes it."""
        kind = f"{self.resource}.{self.group}".rstrip(".")
        return "/".join(filter(None, (kind, self.subresource))) + f" [{self.name or '*'}]"


OF_RADDLE: Final = tuple(
    Target(RADDLE, resource, subresource)
    for resource in ("inferencethreadings", "clusterinferencethreadings", "nodecputopologies")
    for subresource in ("", "status")
)
ASKED: Final = (
    *OF_RADDLE,
    Target("", "pods"),
    Target("", "pods", "status"),
    Target("", "pods", "binding"),
    Target("", "pods", "exec"),
    Target("", "pods", "log"),
    Target("", "nodes"),
    Target("", "nodes", "status"),
    Target("", "nodes", "proxy"),
    Target("", "nodes", "configz"),
    Target("", "namespaces"),
    Target("", "configmaps"),
    Target("", "secrets"),
    Target("", "secrets", "", "raddle-webhook-tls"),
    Target("", "serviceaccounts"),
    Target("", "serviceaccounts", "token", "raddle-controller"),
    Target("events.k8s.io", "events"),
    Target("coordination.k8s.io", "leases"),
    Target("coordination.k8s.io", "leases", "", "raddle-controller"),
    Target("apps", "deployments"),
    Target("apiextensions.k8s.io", "customresourcedefinitions"),
    Target("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    Target("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "raddle"),
    Target("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    Target(RBAC, "clusterroles"),
    Target(RBAC, "clusterrolebindings"),
)
NEVER: Final = (
    ("GET", "/api/v1/secrets"),
    ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    ("POST", f"/api/v1/namespaces/{TENANT}/pods"),
    ("POST", f"/api/v1/namespaces/{TENANT}/pods/app/binding"),
    ("DELETE", f"/api/v1/namespaces/{TENANT}/pods/app"),
    ("POST", f"/apis/{RBAC}/v1/clusterrolebindings"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/raddle-controller/token"),
    ("DELETE", "/apis/raddle.dev/v1alpha1/nodecputopologies/any"),
    ("POST", f"/apis/raddle.dev/v1alpha1/namespaces/{TENANT}/inferencethreadings"),
)
"""What no account of Raddle's may do, by (method, path)."""


class Asked(NamedTuple):
    """What an account may do with a target in a namespace ("": in all), by the verbs of VERBS."""

    target: Target
    namespace: str
    allowed: tuple[str, ...]

    @property
    def denied(self) -> tuple[str, ...]:
        """Return the other verbs."""
        return tuple(verb for verb in VERBS if verb not in self.allowed)


def _review(caller: Caller, kind: str, spec: object) -> dict[str, object]:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = caller.request("POST", f"{REVIEWS}/{kind.lower()}s", body)
    if answer.status != CREATED:
        raise BrokenError(f"{kind}: {answer.message}")
    return dict(answer.body["status"])


def may(caller: Caller, verb: str, target: Target, namespace: str) -> bool:
    """Tell whether the caller may."""
    attributes = {"verb": verb, "group": target.group, "resource": target.resource, "namespace": namespace}
    attributes |= {"subresource": target.subresource} if target.subresource else {}
    attributes |= {"name": target.name} if target.name else {}
    return bool(_review(caller, "SelfSubjectAccessReview", {"resourceAttributes": attributes})["allowed"])


def ask(caller: Caller, targets: Iterable[Target], namespaces: Sequence[str]) -> Iterator[Asked]:
    """Ask for every verb of every target in each of the namespaces."""
    for target in targets:
        for namespace in namespaces:
            yield Asked(target, namespace, tuple(verb for verb in VERBS if may(caller, verb, target, namespace)))


def rules(caller: Caller, namespace: str) -> set[tuple[str, str, str]]:
    """Return every rule that holds for the caller in a namespace: (resource, names, verb)."""
    status = _review(caller, "SelfSubjectRulesReview", {"namespace": namespace})
    if status["incomplete"]:
        raise BrokenError(f"the rules in {namespace} are incomplete")
    found: set[tuple[str, str, str]] = set()
    for rule in status["resourceRules"]:  # type: ignore[attr-defined]
        for group in rule.get("apiGroups", []):
            for resource in rule["resources"]:
                names = ",".join(sorted(rule.get("resourceNames", []))) or "*"
                found.update((f"{resource}.{group}".rstrip("."), names, verb) for verb in rule["verbs"])
    for rule in status["nonResourceRules"]:  # type: ignore[attr-defined]
        found.update((url, "*", verb) for url in rule["nonResourceURLs"] for verb in rule["verbs"])
    return found


@contextlib.contextmanager
def tenant(cluster: Cluster) -> Iterator[None]:
    """A namespace with an account of each of the cluster's own roles that has Raddle's rules by aggregation."""
    client = cluster.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    for role in ROLES:
        metadata = {"name": role, "namespace": TENANT}
        client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        client.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", **metadata}],
            }
        )
        with Caller.account(cluster, role, TENANT) as caller:
            wait(lambda caller=caller: may(caller, "list", OF_RADDLE[0], TENANT), f"{role} is aggregated")  # type: ignore[misc]
    try:
        yield
    finally:
        client.delete(f"/api/v1/namespaces/{TENANT}")


def tried(cluster: Cluster) -> list[str]:
    """Try what no account may do, as each account; what is not refused, in words."""
    found = []
    for name in ACCOUNTS:
        with Caller.account(cluster, name, NAMESPACE) as caller:
            for method, path in NEVER:
                answer = caller.request(method, path, {} if method == "POST" else None)
                if answer.status != FORBIDDEN:
                    found.append(f"{name}: {method} {path} got {answer.status}")
    return found


def everything(world: World, cluster: Cluster) -> Result:
    """Ask for every verb as each account of Raddle's and each role of a tenant's, and try what must be refused."""
    allowed = denied = 0
    figures = {}
    with tenant(cluster):
        for name, namespace, targets, namespaces in (
            *((name, NAMESPACE, ASKED, (NAMESPACE, "")) for name in ACCOUNTS),
            *((role, TENANT, OF_RADDLE, (TENANT, "")) for role in ROLES),
        ):
            with Caller.account(cluster, name, namespace) as caller:
                found = list(ask(caller, targets, namespaces))
            may_, may_not = sum(len(one.allowed) for one in found), sum(len(one.denied) for one in found)
            figures[name] = f"{may_} allowed, {may_not} denied"
            allowed, denied = allowed + may_, denied + may_not
            world.say(f"{name}: {figures[name]}")
        passed = tried(cluster)
    figures["asked in all"] = f"{allowed + denied}: {allowed} allowed, {denied} denied"
    figures["forbidden requests tried"] = str(len(ACCOUNTS) * len(NEVER))
    figures["refused"] = str(len(ACCOUNTS) * len(NEVER) - len(passed))
    return Result(figures, tuple(passed))


CHECKS: Final = (
    Check(
        "rights",
        "Each account of Raddle's, and each role that has its rules, is asked for every verb; what none may is tried.",
        "No Secrets are listed, no pods created, bound or deleted, no roles bound (a test has all rights in a file).",
        lambda world: everything(world, world.raddle.cluster),
        "attack",
    ),
)
