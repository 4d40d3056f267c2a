"""What each account may do, asked of a real API server with the account's own token, verb by verb.

golden/rbac.txt is the whole of it: a right that is new, or lost, is a line of that file's diff.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from devcluster import Cluster

CHART = Path(__file__).parents[2] / "charts" / "raddle"
NAMESPACE, TENANT = "raddle-system", "tenant"
ACCOUNTS = ("raddle-controller", "raddle-webhook", "raddle-agent")
ROLES = ("view", "edit", "admin")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RADDLE = "raddle.dev"
# (group, resource, subresource, name): name "" is every object of the kind.
OF_RADDLE = [
    (RADDLE, "inferencethreadings", "", ""),
    (RADDLE, "inferencethreadings", "status", ""),
    (RADDLE, "clusterinferencethreadings", "", ""),
    (RADDLE, "clusterinferencethreadings", "status", ""),
    (RADDLE, "nodecputopologies", "", ""),
    (RADDLE, "nodecputopologies", "status", ""),
]
ASKED = [
    *OF_RADDLE,
    ("", "pods", "", ""),
    ("", "pods", "status", ""),
    ("", "pods", "binding", ""),
    ("", "pods", "exec", ""),
    ("", "pods", "log", ""),
    ("", "nodes", "", ""),
    ("", "nodes", "status", ""),
    ("", "nodes", "proxy", ""),
    ("", "nodes", "configz", ""),
    ("", "namespaces", "", ""),
    ("", "configmaps", "", ""),
    ("", "secrets", "", ""),
    ("", "secrets", "", "raddle-webhook-tls"),
    ("", "serviceaccounts", "", ""),
    ("", "serviceaccounts", "token", "raddle-controller"),
    ("events.k8s.io", "events", "", ""),
    ("coordination.k8s.io", "leases", "", ""),
    ("coordination.k8s.io", "leases", "", "raddle-controller"),
    ("apps", "deployments", "", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", "", ""),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", ""),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "raddle"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "", ""),
    ("rbac.authorization.k8s.io", "clusterroles", "", ""),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "", ""),
]


@pytest.fixture(scope="module")
def cluster():
    # The controller manager aggregates roles.
    with Cluster(scheduler=False, name="rbac") as running:
        running.helm(
            "install", "raddle", str(CHART), "--namespace", NAMESPACE, "--create-namespace",
            "--set", "workloads.enabled=false", "--set", "webhook.url=https://127.0.0.1:1",
        )  # fmt: skip
        running.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
        for role in ROLES:
            running.client.apply(
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": role, "namespace": TENANT}}
            )
            running.client.apply(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": role, "namespace": TENANT},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": TENANT}],
                }
            )
        yield running


class Account:
    """A service account of the cluster, by its token."""

    def __init__(self, cluster, name, namespace):
        self.name = name
        self._token = cluster.kubectl("create", "token", name, "-n", namespace).stdout.strip()
        config = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        address = urlsplit(config["server"])
        context = ssl.create_default_context(cadata=base64.b64decode(config["certificate-authority-data"]).decode())
        self._connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=30, context=context)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def request(self, method, path, body=None):
        """(status, JSON object) of a request."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def review(self, kind, spec):
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        status, answer = self.request("POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
        assert status == 201, answer
        return answer["status"]

    def may(self, verb, target, namespace):
        group, resource, subresource, name = target
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        if subresource:
            attributes["subresource"] = subresource
        if name:
            attributes["name"] = name
        return self.review("SelfSubjectAccessReview", {"resourceAttributes": attributes})["allowed"]

    def rules(self, namespace):
        """Every rule that holds in a namespace, one line each."""
        status = self.review("SelfSubjectRulesReview", {"namespace": namespace})
        assert not status["incomplete"]
        found = set()
        for rule in status["resourceRules"]:
            for group in rule.get("apiGroups", []):
                for resource in rule["resources"]:
                    names = ",".join(sorted(rule.get("resourceNames", []))) or "*"
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


def table(account, targets, namespaces):
    """One line a kind of object and place: the verbs that are allowed, and those that are denied."""
    for group, resource, subresource, name in targets:
        for namespace in namespaces:
            allowed = [verb for verb in VERBS if account.may(verb, (group, resource, subresource, name), namespace)]
            denied = [verb for verb in VERBS if verb not in allowed]
            what = "/".join(filter(None, (f"{resource}.{group}".rstrip("."), subresource)))
            where = namespace or "everywhere"
            yield (
                f"  {what} [{name or '*'}] {where}: allowed {' '.join(allowed) or '-'}; denied {' '.join(denied) or '-'}"
            )


def test_every_right_of_every_account_is_in_the_golden_file(cluster, golden):
    lines = []
    with Account(cluster, "default", NAMESPACE) as nobody:
        everybodys = {namespace: nobody.rules(namespace) for namespace in (NAMESPACE, TENANT)}
    for name in ACCOUNTS:
        with Account(cluster, name, NAMESPACE) as account:
            for namespace in (NAMESPACE, TENANT):
                lines.append(f"{name}: all rules in {namespace}, beyond those of every account")
                lines += by_verbs(account.rules(namespace) - everybodys[namespace])
            lines.append(f"{name}: asked")
            lines += table(account, ASKED, (NAMESPACE, ""))
    for role in ROLES:
        with Account(cluster, role, TENANT) as account:
            wanted = (RADDLE, "inferencethreadings", "", "")
            assert account.may("list", wanted, TENANT), "the role has Raddle's rules by aggregation"
            lines.append(f"{role} in {TENANT}: asked")
            lines += table(account, OF_RADDLE, (TENANT, ""))
    golden("rbac.txt", "\n".join(lines) + "\n")


def test_what_no_account_may_do_is_refused_when_it_is_tried(cluster):
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    tries = [
        ("GET", "/api/v1/secrets"),
        ("GET", secret),
        ("POST", f"/api/v1/namespaces/{TENANT}/pods"),
        ("POST", f"/api/v1/namespaces/{TENANT}/pods/app/binding"),
        ("DELETE", f"/api/v1/namespaces/{TENANT}/pods/app"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/raddle-controller/token"),
        ("DELETE", "/apis/raddle.dev/v1alpha1/nodecputopologies/any"),
        ("POST", f"/apis/raddle.dev/v1alpha1/namespaces/{TENANT}/inferencethreadings"),
    ]
    for name in ACCOUNTS:
        with Account(cluster, name, NAMESPACE) as account:
            for method, path in tries:
                status, answer = account.request(method, path, {} if method == "POST" else None)
                assert status == 403, (name, method, path, answer)
