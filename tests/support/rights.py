"""Roles and who has them."""

RBAC = "rbac.authorization.k8s.io"


def user(name):
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def account(name, namespace):
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def rule(groups, resources, verbs):
    """Of words such as "get list"; the group of core objects is ""."""
    return {"apiGroups": groups.split(" "), "resources": resources.split(), "verbs": verbs.split()}


def bind(client, role, *subjects, kind="ClusterRole", namespace=""):
    """Give the subjects a role: in the namespace, or everywhere."""
    made, place = ("RoleBinding", {"namespace": namespace}) if namespace else ("ClusterRoleBinding", {})
    common = {"apiVersion": f"{RBAC}/v1", "kind": made, "metadata": {"name": role, **place}}
    client.apply({**common, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role}, "subjects": subjects})


def grant(client, role, rules, *subjects, namespace=""):
    """Make a role with these rules, of the namespace or of the cluster, and give it to the subjects."""
    kind, place = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    client.apply({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": role, **place}, "rules": rules})
    bind(client, role, *subjects, kind=kind, namespace=namespace)
