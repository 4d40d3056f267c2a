"""Two processes and one Lease on a real API server."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from support.leading import Leading
from support.waiting import until

from raddle_operator.kube import NAMESPACES
from raddle_operator.kube.leader import Elector, LeadershipLostError, Timing

pytestmark = pytest.mark.cluster

QUICK = Timing(lease_s=3, renew_deadline_s=2, retry_s=0.3)
NAMESPACE = "raddle-system"
CANDIDATE = """
import asyncio, sys
from pathlib import Path
from raddle_operator.kube import Kube
from raddle_operator.kube.leader import Elector, Timing

async def lead():
    print("leads", flush=True)
    await asyncio.Event().wait()

async def main(kubeconfig, name, identity):
    async with await Kube.from_settings(Path(kubeconfig)) as kube:
        timing = Timing(lease_s=3, renew_deadline_s=2, retry_s=0.3)
        elector = Elector(kube, namespace="raddle-system", name=name, identity=identity, timing=timing)
        await elector.run(lead)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def cluster(api_server):
    return api_server


@pytest.fixture
def candidate(cluster, request):
    """Start candidates as processes of their own, so that one can be killed like a node dies."""
    started = []

    def start(name, identity):
        environment = {"PYTHONPATH": ":".join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CANDIDATE), str(cluster.kubeconfig), name, identity],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.asynccontextmanager
async def electing(kube, name, identity, timing=QUICK):
    work = Leading()
    elector = Elector(kube, namespace=NAMESPACE, name=name, identity=identity, timing=timing)
    task = asyncio.create_task(elector.run(work))
    work.task = task
    try:
        yield work
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_two_electors_never_lead_at_once_and_hand_over_quickly(kube):
    names = ["a", "b", "c"]
    async with contextlib.AsyncExitStack() as stack:
        works = {name: await stack.enter_async_context(electing(kube, "shared", name)) for name in names}
        for _ in range(len(names)):
            async with asyncio.timeout(2):
                waiters = [asyncio.create_task(work.began.wait()) for work in works.values()]
                await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
                for waiter in waiters:
                    waiter.cancel()
            leaders = [name for name, work in works.items() if work.running]
            assert len(leaders) == 1
            gone = works.pop(leaders[0])
            gone.task.cancel()
            await asyncio.gather(gone.task, return_exceptions=True)
            assert not gone.running


async def test_after_a_hard_kill_the_next_one_leads_when_the_lease_has_run_out_and_not_before(kube, candidate):
    process = candidate("killed", "dies")
    assert await asyncio.to_thread(process.stdout.readline) == "leads\n"
    process.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    async with electing(kube, "killed", "follows") as work:
        async with asyncio.timeout(20):
            await work.began.wait()
        waited_s = time.monotonic() - killed_s
    # The dead leader renewed at most one retry period before its end.
    assert QUICK.lease_s - QUICK.retry_s * 1.2 - 0.5 <= waited_s <= QUICK.lease_s + 2 * QUICK.retry_s * 1.2 + 1


async def test_a_leader_without_an_api_server_stops_before_its_lease_has_run_out(cluster, kube):
    async with electing(kube, "cut-off", "a") as work:
        await work.began.wait()
        began_s = time.monotonic()
        cluster.stop("apiserver")
        try:
            with pytest.raises(LeadershipLostError):
                await work.task
            assert not work.running
            assert time.monotonic() - began_s < QUICK.lease_s + 1
        finally:
            cluster.start("apiserver")
    await until(lambda: kube.list(NAMESPACES), "the API server is back", refusals=(Exception,))
