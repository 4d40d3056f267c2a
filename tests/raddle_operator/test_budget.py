"""Limits, requests and pod-level resources become what the planner counts with."""

import pytest
from hypothesis import given
from support import strategies

from raddle_operator.injection.budget import container_budget, is_guaranteed, pod_resources
from raddle_operator.objects.policy import pod_from_object
from raddle_operator.objects.quantities import QuantityError


def resources(cpu=None, memory=None, request=None, **more):
    limits = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None} | more
    requests = dict(limits) | ({"cpu": request} if request is not None else {})
    return {"limits": limits, "requests": requests}


def pod(*containers, init=(), of_pod=None):
    def named(parts, prefix):
        return [{"name": f"{prefix}{n}", "resources": part} for n, part in enumerate(parts)]

    spec = {"containers": named(containers, "c"), "initContainers": named(init, "i")}
    return pod_from_object({"metadata": {}, "spec": {**spec, **({"resources": of_pod} if of_pod else {})}})


def budget(read, place=0, **more):
    return container_budget(read.containers[place], pod_resources(read), **more)


@pytest.mark.parametrize(
    ("part", "quota", "request_cpus", "because"),
    [
        (resources("1500m", request="1"), 1.5, 1.0, "limits.cpu 1500m"),
        (resources("2"), 2.0, 2.0, "limits.cpu 2"),
        ({"limits": {"cpu": "2"}}, 2.0, 2.0, "limits.cpu 2"),
        (resources(request="500m"), None, 0.5, "no CPU limit"),
        (resources("0"), None, None, "no CPU limit"),
        ({}, None, None, "no CPU limit"),
        (resources("1E"), 65536.0, 65536.0, "limits.cpu 1E"),
    ],
)
def test_a_containers_own_limit_is_its_quota(part, quota, request_cpus, because):
    found = budget(pod(part))
    assert (found.quota_cpus, found.request_cpus, found.because) == (quota, request_cpus, because)


@pytest.mark.parametrize(
    ("read", "whole"),
    [
        (pod(resources("4", "1Gi")), 4),
        (pod(resources("4000m", "1Gi")), 4),
        (pod(resources("1500m", "1Gi")), 0),
        (pod(resources("4", "1Gi", request="2")), 0),
        (pod(resources("4")), 0),
        (pod(resources("4", "1Gi"), resources("500m", "1Gi")), 4),
        (pod(resources("4", "1Gi"), {}), 0),
        (pod(resources("4", "1Gi"), init=[resources("1", "1Gi")]), 4),
        (pod(resources("4", "1Gi"), init=[{}]), 0),
        (pod(resources("4", "1Gi"), of_pod=resources("4", "1Gi")), 0),
    ],
)
def test_whole_cpus_need_a_guaranteed_pod_and_an_integer(read, whole):
    assert budget(read).whole_cpus == whole


@pytest.mark.parametrize(
    ("containers", "place", "quota"),
    [
        (({}, {}), 0, 2.0),
        (({},), 0, 4.0),
        ((resources("1"), {}), 1, 3.0),
        ((resources("1"), {}), 0, 1.0),
        ((resources("4"), {}), 1, 2.0),
        ((resources("8"), {}), 0, 4.0),
    ],
)
def test_a_pod_level_limit_is_divided_among_those_without_their_own(containers, place, quota):
    found = budget(pod(*containers, of_pod=resources("4", "1Gi")), place)
    assert found.quota_cpus == quota
    assert found.whole_cpus == 0


def test_the_part_of_a_pod_level_limit_is_explained():
    found = budget(pod({}, {}, of_pod=resources("4")))
    assert found.because == "pod-level limits.cpu 4, 2 for each container without a limit of its own"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("nvidia.com/gpu", True), ("amd.com/gpu", True), ("nvidia.com/mig-1g.5gb", True), ("gpu.intel.com/i915", True),
     ("example.test/gpu", True), ("hugepages-2Mi", False), ("example.test/gpus", False)],
)  # fmt: skip
def test_a_gpu_is_known_by_its_resource(name, gpu):
    assert budget(pod(resources("1", **{name: "1"}))).gpu is gpu


def test_workers_and_their_source_are_told():
    found = budget(pod(resources("4")), workers=2, workers_source="gunicorn --workers")
    assert (found.workers, found.because) == (2, "limits.cpu 4 (2 workers: gunicorn --workers)")


@pytest.mark.parametrize("quantity", ["-1", "lots", [], {}, True, "1" * 100])
def test_an_absurd_quantity_is_a_typed_error(quantity):
    with pytest.raises(QuantityError):
        budget(pod(resources(quantity)))


@given(strategies.pods())
def test_guaranteed_agrees_with_upstream(obj):
    assert is_guaranteed(pod_from_object(obj)) is (strategies.qos(obj) == "Guaranteed")
