"""What a user of one namespace can try on a real API server with labels, annotations and policies of their own.

They have `edit` in their namespace, and may write pods/status. The attacks are those of `python -m reliability attacks`,
which tries them in larger numbers; each says itself what did not hold.
"""

from __future__ import annotations

import pytest

from cluster.progress import Progress
from reliability import attack_load, attack_port, attack_reviews, attack_users
from reliability.world import World

POLICIES, PODS, SAMPLES = 200, 5, 20


@pytest.fixture(scope="module")
def world(raddle):
    """The cluster and Raddle of all integration tests, as the attacks want them."""

    class Here(World):
        cluster = raddle.cluster

    with Here(Progress(name="attacks")) as world:
        Here.raddle = raddle
        yield world


def test_nothing_of_another_tenant_is_readable_writable_or_usable(world, raddle):
    result = attack_users.others(world, raddle)
    assert result.broken == ()
    assert result.figures["answered"] == result.figures["with its values"] == "0"


def test_nothing_that_a_user_names_runs_or_is_mounted(world, raddle):
    result = attack_users.code(world, raddle)
    assert result.broken == ()
    assert result.figures["refused with the field"] == str(len(attack_users.NAMES_CODE))


def test_raddles_annotations_of_a_running_pod_stay_as_they_are(world, raddle):
    assert attack_users.running_pods(world, raddle).broken == ()


def test_an_agent_writes_its_own_nodes_topology_only(raddle):
    assert attack_users.other_nodes(raddle).broken == ()


def test_a_crowd_of_policies_holds_no_other_tenant_up(world, raddle):
    assert attack_load.crowd(world, raddle, POLICIES).broken == ()


def test_an_annotation_of_a_mebibyte_is_refused_by_the_api_server_and_holds_nobody_up(world, raddle):
    result = attack_load.big_annotation(world, raddle, PODS)
    assert result.broken == ()
    assert result.figures["refused by the API server"] == str(PODS)


def test_a_pod_that_the_api_server_takes_without_raddle_it_takes_with_and_a_second_review_changes_nothing(
    world, raddle
):
    """A sample of what `make fuzz` tries."""
    result = attack_reviews.on_a_real_api_server(world, raddle, SAMPLES)
    assert result.broken == ()
    assert result.figures["pods that a real API server takes"] == str(2 * SAMPLES)


def test_requests_that_are_too_large_are_refused_and_hold_nobody_up(world, raddle):
    assert attack_port.too_large(world, raddle, PODS).broken == ()


def test_a_webhook_that_asks_for_certificates_serves_the_api_server_alone():
    """By a cluster of its own: an API server reads what it shows to webhooks at its start."""
    with World(Progress(name="attacks")) as own:
        assert attack_port.without_certificate(own).broken == ()
