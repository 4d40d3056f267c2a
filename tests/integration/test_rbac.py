"""What each account may do, asked of a real API server with the account's own token, verb by verb, and tried.

golden/rbac.txt is the whole of it: a right that is new, or lost, is a line of that file's diff.
"""

import itertools
from collections import Counter
from typing import NamedTuple

import pytest
from support.attackers import CREATED, FORBIDDEN, Caller
from support.rights import RBAC, account, bind

from cluster.local_raddle import NAMESPACE
from cluster.waiting import wait

TENANT = "tenant"
ACCOUNTS = ("raddle-controller", "raddle-webhook", "raddle-agent")
# The cluster's own roles that have Raddle's rules by aggregation.
ROLES = ("view", "edit", "admin")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RADDLE = "raddle.dev"


class Target(NamedTuple):
    """A kind of object, or one by its name; name "" is every object of the kind."""

    group: str
    resource: str
    subresource: str = ""
    name: str = ""

    def __str__(self):
        """As the golden file writes it."""
        kind = f"{self.resource}.{self.group}".rstrip(".")
        return "/".join(filter(None, (kind, self.subresource))) + f" [{self.name or '*'}]"


OF_RADDLE = tuple(
    Target(RADDLE, resource, subresource)
    for resource in ("inferencethreadings", "clusterinferencethreadings", "nodecputopologies")
    for subresource in ("", "status")
)
ASKED = (
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
# What no account of Raddle's may do, by (method, path).
NEVER = (
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


@pytest.fixture(scope="module")
def installed(raddle):
    """The cluster, with a namespace where an account has each of the roles."""
    client = raddle.cluster.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    for role in ROLES:
        metadata = {"name": role, "namespace": TENANT}
        client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        bind(client, role, account(role, TENANT), namespace=TENANT)
        with Caller.account(raddle.cluster, role, TENANT) as caller:
            wait(lambda caller=caller: may(caller, "list", OF_RADDLE[0], TENANT), f"{role} is aggregated")
    yield raddle.cluster
    client.delete(f"/api/v1/namespaces/{TENANT}")


def review(caller, kind, spec):
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = caller.request("POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
    assert answer.status == CREATED, answer.message
    return answer.body["status"]


def may(caller, verb, target, namespace):
    attributes = {"verb": verb, "namespace": namespace, **{key: text for key, text in target._asdict().items() if text}}
    return review(caller, "SelfSubjectAccessReview", {"resourceAttributes": attributes})["allowed"]


def rules(caller, namespace):
    """Every rule that holds for the caller in a namespace: (resource, names, verb)."""
    status = review(caller, "SelfSubjectRulesReview", {"namespace": namespace})
    assert not status["incomplete"]
    found = set()
    for rule in status["resourceRules"]:
        names = ",".join(sorted(rule.get("resourceNames", []))) or "*"
        for group, resource in itertools.product(rule.get("apiGroups", []), rule["resources"]):
            found.update((f"{resource}.{group}".rstrip("."), names, verb) for verb in rule["verbs"])
    for rule in status["nonResourceRules"]:
        found.update((url, "*", verb) for url in rule["nonResourceURLs"] for verb in rule["verbs"])
    return found


def by_verbs(rules):
    grouped = {}
    for resource, names, verb in rules:
        grouped.setdefault((resource, names), set()).add(verb)
    return [
        f"  {resource} [{names}]: {' '.join(sorted(verbs))}" for (resource, names), verbs in sorted(grouped.items())
    ]


def table(caller, targets, namespaces, counts):
    """One line per kind of object and place: the verbs that are allowed, and those that are denied."""
    for target, namespace in itertools.product(targets, namespaces):
        allowed = [verb for verb in VERBS if may(caller, verb, target, namespace)]
        denied = [verb for verb in VERBS if verb not in allowed]
        counts.update(allowed=len(allowed), denied=len(denied))
        told = f"allowed {' '.join(allowed) or '-'}; denied {' '.join(denied) or '-'}"
        yield f"  {target} {namespace or 'everywhere'}: {told}"


@pytest.mark.attack(
    "rights",
    "Each account of Raddle's, and each role that has its rules, is asked for every verb; what none may is tried.",
    "No Secrets are listed, no pods created, bound or deleted, no roles bound (a test has all rights in a file).",
)
def test_every_right_of_every_account_is_in_the_golden_file_and_what_none_may_do_is_refused(installed, golden, figures):
    lines, passed = [], []
    counts = {name: Counter() for name in (*ACCOUNTS, *ROLES)}
    with Caller.account(installed, "default", NAMESPACE) as nobody:
        everybodys = {namespace: rules(nobody, namespace) for namespace in (NAMESPACE, TENANT)}
    for name in ACCOUNTS:
        with Caller.account(installed, name, NAMESPACE) as account:
            for namespace in (NAMESPACE, TENANT):
                lines.append(f"{name}: all rules in {namespace}, beyond those of every account")
                lines += by_verbs(rules(account, namespace) - everybodys[namespace])
            lines.append(f"{name}: asked")
            lines += table(account, ASKED, (NAMESPACE, ""), counts[name])
            for method, path in NEVER:
                status = account.request(method, path, {} if method == "POST" else None).status
                passed += [(name, method, path, status)] if status != FORBIDDEN else []
    for role in ROLES:
        with Caller.account(installed, role, TENANT) as account:
            lines.append(f"{role} in {TENANT}: asked")
            lines += table(account, OF_RADDLE, (TENANT, ""), counts[role])
    total = sum(counts.values(), Counter())
    figures |= {name: f"{one['allowed']} allowed, {one['denied']} denied" for name, one in counts.items()}
    figures |= {
        "asked in all": f"{total.total()}: {total['allowed']} allowed, {total['denied']} denied",
        "forbidden requests tried": len(ACCOUNTS) * len(NEVER),
        "refused": len(ACCOUNTS) * len(NEVER) - len(passed),
    }
    assert passed == []
    golden("rbac.txt", "\n".join(lines) + "\n")
