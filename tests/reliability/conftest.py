"""Clusters whose parts fail: one that checks share while they hurt Raddle's processes only, and namespaces there."""

import itertools
import os
import shutil
import signal

import pytest
from support.reliability.installed import govern, installed, restart

from cluster import Cluster, namespaces
from cluster.interrupt import interrupt_on

_numbers = itertools.count()


def pytest_collection_modifyitems(items):
    for item in items:
        if any(map(item.get_closest_marker, ("failure", "attack"))) and "reliability" in item.path.parts:
            item.add_marker(pytest.mark.reliability)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def _no_rules_left():
    """A closed terminal must leave no packet filter behind."""
    interrupt_on(signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(scope="session")
def webhook_group():
    """The shared webhook's own group, so that its packets can be told from others'; None where that can't be had."""
    return 50_000 + os.getpid() % 10_000 if os.geteuid() == 0 and shutil.which("setpriv") else None


@pytest.fixture(scope="package")
def shared(webhook_group):
    prefix = ["setpriv", "--regid", str(webhook_group), "--clear-groups"] if webhook_group else []
    with Cluster(name="reliability") as cluster, installed(cluster, prefixes={"webhook": prefix}) as raddle:
        yield raddle


@pytest.fixture
def raddle(shared):
    """Raddle on the shared cluster, both processes up: a check may end either."""
    restart(shared.webhook)
    restart(shared.controller)
    return shared


@pytest.fixture
def new_space(raddle):
    """new_space(): a new namespace on the shared cluster, opted in."""
    return lambda: namespaces.fresh(raddle, f"check-{next(_numbers)}")


@pytest.fixture
def space(new_space):
    """A namespace of the test's own, opted in."""
    with new_space() as made:
        yield made


@pytest.fixture
def governed(space):
    """Such a namespace whose pods get the values of a policy that the webhook knows."""
    govern(space)
    return space
