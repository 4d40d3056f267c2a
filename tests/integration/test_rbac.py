"""What each account may do, asked of a real API server with the account's own token, verb by verb.

golden/rbac.txt is the whole of it: a right that is new, or lost, is a line of that file's diff.
"""

from __future__ import annotations

import pytest

from cluster.local_raddle import NAMESPACE
from reliability import attack_rights
from reliability.attack_rights import ACCOUNTS, ASKED, OF_RADDLE, ROLES, TENANT
from reliability.attackers import Caller


@pytest.fixture(scope="module")
def installed(raddle):
    with attack_rights.tenant(raddle.cluster):
        yield raddle.cluster


def by_verbs(rules):
    grouped = {}
    for resource, names, verb in rules:
        grouped.setdefault((resource, names), set()).add(verb)
    return [
        f"  {resource} [{names}]: {' '.join(sorted(verbs))}" for (resource, names), verbs in sorted(grouped.items())
    ]


def table(account, targets, namespaces):
    """One line per kind of object and place: the verbs that are allowed, and those that are denied."""
    for one in attack_rights.ask(account, targets, namespaces):
        allowed, denied = " ".join(one.allowed) or "-", " ".join(one.denied) or "-"
        yield f"  {one.target} {one.namespace or 'everywhere'}: allowed {allowed}; denied {denied}"


def test_every_right_of_every_account_is_in_the_golden_file(installed, golden):
    lines = []
    with Caller.account(installed, "default", NAMESPACE) as nobody:
        everybodys = {namespace: attack_rights.rules(nobody, namespace) for namespace in (NAMESPACE, TENANT)}
    for name in ACCOUNTS:
        with Caller.account(installed, name, NAMESPACE) as account:
            for namespace in (NAMESPACE, TENANT):
                lines.append(f"{name}: all rules in {namespace}, beyond those of every account")
                lines += by_verbs(attack_rights.rules(account, namespace) - everybodys[namespace])
            lines.append(f"{name}: asked")
            lines += table(account, ASKED, (NAMESPACE, ""))
    for role in ROLES:
        with Caller.account(installed, role, TENANT) as account:
            lines.append(f"{role} in {TENANT}: asked")
            lines += table(account, OF_RADDLE, (TENANT, ""))
    golden("rbac.txt", "\n".join(lines) + "\n")


def test_what_no_account_may_do_is_refused_when_it_is_tried(installed):
    assert attack_rights.tried(installed) == []
