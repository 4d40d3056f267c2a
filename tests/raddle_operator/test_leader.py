"""Leader election against a Lease in memory that keeps the API server's promises: versions and compare-and-swap."""

import asyncio
import copy

import pytest
from support.leading import Leading

from raddle_operator.kube import AlreadyExists, Conflict, NotFound, Unavailable
from raddle_operator.kube.leader import Elector, LeadershipLostError, Timing

QUICK = Timing(lease_s=1.0, renew_deadline_s=0.6, retry_s=0.1)


class Leases:
    """One Lease. `down` refuses everything; `slow_s` delays answers; `looks` counts reads, `stored` gets each write."""

    def __init__(self):
        self.looks = 0
        self.stored = asyncio.Queue()
        self.lease = None
        self.version = 0
        self.down = False
        self.slow_s = 0.0

    async def _arrive(self):
        await asyncio.sleep(self.slow_s)
        if self.down:
            raise Unavailable(503, "", "down")

    def _store(self, body):
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.stored.put_nowait(self.lease)
        return copy.deepcopy(self.lease)

    async def get(self, resource, name, namespace):
        self.looks += 1
        await self._arrive()
        if self.lease is None:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(self.lease)

    async def create(self, resource, body):
        await self._arrive()
        if self.lease is not None:
            raise AlreadyExists(409, "AlreadyExists", "")
        return self._store(body)

    async def replace(self, resource, body):
        await self._arrive()
        if self.lease is None:
            raise NotFound(404, "NotFound", "")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "")
        return self._store(body)


def elector(leases, identity, timing=QUICK):
    return Elector(leases, namespace="raddle-system", name="raddle-controller", identity=identity, timing=timing)


async def stop(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def leading(candidate):
    """The work of a candidate that leads, and its task."""
    work = Leading()
    task = asyncio.create_task(candidate.run(work))
    await work.began.wait()
    return work, task


async def test_the_first_candidate_leads_and_writes_what_client_go_writes():
    _, task = await leading(elector(leases := Leases(), "a"))
    spec = leases.lease["spec"]
    assert spec["holderIdentity"] == "a"
    assert spec["leaseDurationSeconds"] == 1
    assert spec["leaseTransitions"] == 0
    assert spec["acquireTime"] == spec["renewTime"]
    await stop(task)


async def test_a_renewal_is_one_request():
    _, task = await leading(elector(leases := Leases(), "a"))
    for _ in range(4):
        await leases.stored.get()
    assert leases.looks == 1
    await stop(task)


async def test_a_lease_that_was_deleted_is_made_again_and_work_goes_on():
    leases, work = Leases(), Leading()
    task = asyncio.create_task(elector(leases, "a").run(work))
    await leases.stored.get()
    leases.lease = None
    again = await leases.stored.get()
    assert again["spec"]["holderIdentity"] == "a"
    assert work.running
    await stop(task)


async def test_a_lease_that_is_made_goes_with_its_owner():
    reference = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "raddle-controller", "uid": "u-1"}
    leases = Leases()

    async def owners():
        return [reference]

    _, task = await leading(Elector(leases, namespace="n", name="l", identity="a", timing=QUICK, owners=owners))
    assert leases.lease["metadata"]["ownerReferences"] == [reference]
    await stop(task)


async def test_a_leader_that_stops_releases_and_the_next_one_takes_over_at_once():
    leases, second = Leases(), Leading()
    slow = Timing(lease_s=60, renew_deadline_s=40, retry_s=0.1)
    first, leader = await leading(elector(leases, "a", slow))
    follower = asyncio.create_task(elector(leases, "b", slow).run(second))
    await asyncio.sleep(0.3)
    assert not second.running
    await stop(leader)
    assert not first.running
    async with asyncio.timeout(2):
        await second.began.wait()
    assert leases.lease["spec"]["leaseTransitions"] == 1
    await stop(follower)


@pytest.mark.parametrize("trouble", [{"down": True}, {"slow_s": 60}], ids=["is down", "hangs"])
async def test_a_leader_that_cannot_renew_stops_before_anybody_else_may_start(trouble):
    candidate = elector(leases := Leases(), "a")
    work, task = await leading(candidate)
    vars(leases).update(trouble)
    async with asyncio.timeout(QUICK.lease_s):
        with pytest.raises(LeadershipLostError):
            await task
    assert not work.running
    assert not candidate.is_leader


async def test_a_short_outage_costs_nothing():
    candidate = elector(leases := Leases(), "a")
    work, task = await leading(candidate)
    leases.down = True
    await asyncio.sleep(QUICK.renew_deadline_s / 2)
    leases.down = False
    await asyncio.sleep(QUICK.lease_s)
    assert work.running
    assert candidate.is_leader
    await stop(task)


async def test_a_lease_that_somebody_else_took_ends_the_leader():
    _, task = await leading(elector(leases := Leases(), "a"))
    leases._store({**leases.lease, "spec": {**leases.lease["spec"], "holderIdentity": "thief"}})
    with pytest.raises(LeadershipLostError):
        await task
    assert leases.lease["spec"]["holderIdentity"] == "thief"


async def test_work_that_ends_by_itself_releases_and_its_error_is_raised():
    leases = Leases()

    async def failing():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await elector(leases, "a").run(failing)
    assert leases.lease["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("periods", [(10, 10, 2), (15, 10, 10), (15, 10, 0)])
def test_periods_that_do_not_nest_are_refused(periods):
    lease_s, renew_deadline_s, retry_s = periods
    with pytest.raises(ValueError, match="must be longer"):
        Timing(lease_s=lease_s, renew_deadline_s=renew_deadline_s, retry_s=retry_s)


def test_the_default_periods_hand_over_within_twenty_seconds_of_a_hard_kill():
    timing = Timing()
    assert timing.lease_s + timing.retry_s * 1.2 * 2 <= 20
