"""Pods on real nodes (`make e2e`): what each container was given, and what really runs in it.

Emulated CPUs are late now and then, and so is everything beside them: a pod that is not as expected is tried again.
"""

import pytest
from support import real_pods as pods

from cluster.objects import pod
from e2e import verdict
from e2e.scenarios import GUEST, SCENARIOS

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_each_container_has_the_threads_that_its_scenario_says(scenario, host, request, record_property):
    if GUEST in scenario.nodes:
        request.getfixturevalue("guest")
    if reason := scenario.unavailable():
        pytest.skip(reason)
    stock = {}
    if scenario.stock:
        with pods.without_raddle(host, scenario.name) as space, pods.running(space, scenario) as found:
            for node, one in found.items():
                stock[node] = {c.name: pods.look(space, one, c.name) for c in scenario.containers}
    wrong = []
    with pods.governed(host, scenario.name, scenario.namespace_labels, **scenario.policy_spec) as space:
        pods.wait_for_shim(space, pod(labels=scenario.labels) | {"spec": scenario.pod_spec()})
        with pods.running(space, scenario) as found:
            for node, one in found.items():
                for container in scenario.expected(node):
                    name = container.name
                    seen = pods.seen(space, one, scenario, container)
                    told = verdict.summary(container, one, seen, stock.get(node, {}).get(name))
                    record_property(f"e2e {scenario.name} {node} {name}", told)
                    wrong += [f"{node} {name}: {text}" for text in verdict.judge(scenario, container, one, seen)]
    assert wrong == [], scenario.why
