"""A pod that is resized in place keeps the values that it was planned with; the controller says so."""

from cluster.objects import container, plan_of, pod, policy
from cluster.waiting import wait


def test_a_pod_whose_cpus_are_changed_in_place_is_counted_as_resized(space):
    space.apply(policy())
    space.create(pod(container(cpu="4")))
    planned = plan_of(space.bound())
    controller = space.raddle.controller
    path, kind = f"/api/v1/namespaces/{space.name}/pods/app/resize", "application/strategic-merge-patch+json"
    one = {"name": "serve", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}
    space.client.request("PATCH", path, {"spec": {"containers": [one]}}, content_type=kind)
    wait(lambda: controller.metric("raddle_resized_pods") == 1)
    resized = space.get()
    assert resized["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"
    assert plan_of(resized) == planned
    # It is no older setting of the policy's: that is another count.
    assert controller.metric("raddle_stale_pods") == 0
