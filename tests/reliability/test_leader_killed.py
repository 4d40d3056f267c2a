"""The leading controller is killed: who takes over, when, and whether two have ever written."""

import itertools
import time

import pytest
from support.reliability import audit, truth
from support.reliability.installed import alone, leads

from cluster.background import Background
from cluster.waiting import wait

HAND_OVER_S, KILLS = 20, 2
POLICIES, CHANGES_PER_S = 10, 5


class Changes(Background):
    """A user who changes one policy after the other, from `with` to the end of the block; each calls for a status."""

    def __init__(self, space):
        super().__init__()
        self._space, self.count = space, 0

    def run(self):
        with self._space.cluster.new_client() as client:
            for number in itertools.count():
                changed = truth.capped(f"app-{number % POLICIES}", 2 + number // POLICIES % 7)
                changed["metadata"]["namespace"] = self._space.name
                client.apply(changed)
                self.count += 1
                if self.end.wait(1 / CHANGES_PER_S):
                    return


@pytest.mark.failure(
    "leader-killed",
    "The leading controller is killed (SIGKILL) while policies change; then the one that took over.",
    f"The standby writes within {HAND_OVER_S} s; nobody writes without the Lease; nothing is written twice.",
)
def test_a_standby_takes_over_from_a_killed_leader_and_the_two_never_write_in_turns(figures):
    with alone(cluster_options={"audit_policy": audit.POLICY}) as space:
        raddle = space.raddle
        leader, standby = raddle.controller, raddle.controller_process("second").start().wait_ready()
        killed_at = []
        space.store(*(truth.capped(f"app-{number}", 1) for number in range(POLICIES)))
        with Changes(space) as changes:
            for _ in range(KILLS):
                wait(lambda one=leader: leads(one), "it leads")
                time.sleep(1)  # some statuses
                killed_at.append(time.time())
                leader.kill()
                wait(lambda one=standby: leads(one), "the standby leads", 2 * HAND_OVER_S)
                leader.start().wait_ready()
                leader, standby = standby, leader
            wait(
                lambda: [one for one in statuses(audit.writes(space.cluster)) if one.at_s > killed_at[-1]], "it writes"
            )
        truth.settle(space)
        written = audit.writes(space.cluster)
    work = statuses(written)
    hand_overs_s = [min(one.at_s for one in work if one.at_s > at_s) - at_s for at_s in killed_at]
    turns = [len(list(turn)) for _, turn in itertools.groupby(one.writer for one in work)]
    figures |= {
        "policy changes": changes.count,
        "status writes": " + ".join(map(str, turns)),
        "killed until the next write": ", ".join(f"{one:.1f} s" for one in hand_overs_s),
        "writes without the Lease": len(without_lease(written)),
        "writes that changed nothing": len(unchanged(work)),
    }
    assert max(hand_overs_s) <= HAND_OVER_S
    assert len(turns) == KILLS + 1, "one was to write after the other"
    assert without_lease(written) == []
    assert unchanged(work) == []


def statuses(written):
    """What the leader alone may write."""
    return [one for one in written if one.resource.endswith("/status")]


def without_lease(written):
    """Writes whose writer was not who had written the Lease last, or so long ago that it had run out."""
    found, holder, until_s = [], "", 0.0
    for one in written:
        if one.resource == "leases":
            holder, until_s = one.writer, one.at_s + one.sent["spec"]["leaseDurationSeconds"]
        elif one.account == "raddle-controller" and (one.writer != holder or one.at_s > until_s):
            found.append(one)
    return found


def unchanged(work):
    """Writes after which an object had the version that it had before."""
    seen, found = set(), []
    for one in work:
        found += [one] if (one.name, one.version) in seen else []
        seen.add((one.name, one.version))
    return found


# --- they can find something ------------------------------------------------------------------------------------------


def write(at_s, writer, resource="inferencethreadings/status", version="1", name="shop/p"):
    sent = {"spec": {"leaseDurationSeconds": 15}} if resource == "leases" else {}
    stored = {"metadata": {"resourceVersion": version}}
    return audit.Write(at_s, "raddle-controller", writer, resource, name, sent, stored)


@pytest.mark.parametrize(
    ("at_s", "writer", "wrong"),
    [
        pytest.param(5, "a", 0, id="the holder, in time"),
        pytest.param(16, "a", 1, id="the holder, after its Lease has run out"),
        pytest.param(5, "b", 1, id="somebody else"),
    ],
)
def test_a_write_counts_as_without_the_lease_where_its_writer_does_not_hold_it(at_s, writer, wrong):
    assert len(without_lease([write(0, "a", "leases"), write(at_s, writer)])) == wrong


def test_after_another_has_taken_the_lease_the_first_holds_it_no_more():
    first, second = write(0, "a", "leases"), write(8, "b", "leases")
    assert without_lease([first, second, write(9, "b"), write(9, "a")]) == [write(9, "a")]


def test_a_second_write_to_the_same_version_has_changed_nothing():
    writes = [write(1, "a", version="7"), write(2, "b", version="7"), write(3, "b", version="7", name="shop/q")]
    assert unchanged(writes) == [writes[1]]
