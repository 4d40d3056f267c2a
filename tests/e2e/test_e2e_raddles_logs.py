"""What Raddle's own pods have logged while all else ran: pytest runs this file last, by its name."""

import pytest
from support import real_pods as pods

from cluster.namespaces import TestNamespace
from e2e import release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

ERRORS = (" ERROR ", " CRITICAL ", "Traceback")
# kopf says so of a request that the server had no time for; if none succeeds, it says that too.
RETRIED = "; will retry: "


def test_raddles_own_pods_have_logged_no_error(host, record_property):
    space = TestNamespace(host, release.NAMESPACE)
    found = space.list()
    lines = [
        f"{one['metadata']['name']} {container['name']}: {line}"
        for one in found
        for container in one["spec"]["containers"]
        for line in pods.log(space, one, container["name"]).splitlines()
    ]
    # Shown, not judged: a leader that can't renew its Lease in time ends on purpose, as on an overloaded machine.
    restarts = sum(status["restartCount"] for one in found for status in one["status"].get("containerStatuses", []))
    warnings = sum(" WARNING " in line for line in lines)
    counts = f"{len(found)} pods, {len(lines)} lines, {warnings} warnings, {restarts} restarts"
    record_property("e2e Raddle's own logs", counts)
    assert lines
    assert [line for line in lines if any(mark in line for mark in ERRORS) and RETRIED not in line] == []
