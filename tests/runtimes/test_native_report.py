"""What a C or Java program reports beside its sessions: run times, samples, and totals at its end."""

import json
import time

import pytest
from support.runtimes.native_caller import started

from raddle import env

pytestmark = pytest.mark.runtime

PLAN = "intra=1;inter=1;observe="
CALLERS = [("c", "1.16.3"), ("c", "1.31.1"), ("java", "1.29.0")]
SAMPLE_EVERY_S = 10


def report(folder):
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_runs_are_counted_by_their_times(kind, version, tmp_path):
    began = time.monotonic_ns()
    with started(kind, version, f"{PLAN}runs", variables={env.REPORT: str(tmp_path)}) as caller:
        caller.session("", name="s")
        caller.session("", name="t")
        caller.do(*["run s"] * 9)
        longest = time.monotonic_ns() - began
        assert caller.end() == 0
    found = report(tmp_path)
    assert found["language"] == "native"
    assert [sum(session["runs"]["log2ns"].values()) for session in found["sessions"]] == [10, 1]
    assert [session["runs"]["highWater"] for session in found["sessions"]] == [1, 1]
    # A run of 64 rows takes more than a microsecond.
    assert all(2**10 < 2 ** int(bucket) < 2 * longest for bucket in found["sessions"][0]["runs"]["log2ns"])
    assert found["atExit"]["processCpuUs"] >= found["sessions"][1]["totals"]["processCpuUs"] > 0
    assert found["atExit"]["at"] >= found["startedAt"]


def test_totals_are_sampled_ten_seconds_apart_while_runs_come(tmp_path):
    with started("c", "1.31.1", f"{PLAN}runs", variables={env.REPORT: str(tmp_path)}) as caller:
        caller.session("", name="s")
        caller.do("run s")
        time.sleep(SAMPLE_EVERY_S)
        caller.do("run s", "run s")
        found = report(tmp_path)
        assert caller.end() == 0
    (sample,) = found["samples"]
    assert found["startedAt"] + SAMPLE_EVERY_S - 1 < sample.pop("at") <= found["writtenAt"]
    assert sample["processCpuUs"] > 0
    # The file was written then, not with the next session.
    assert sum(found["sessions"][0]["runs"]["log2ns"].values()) >= 2
    assert "samples" in report(tmp_path)


@pytest.mark.parametrize(("level", "sessions"), [("sessions", 1), ("none", 0)])
def test_a_plan_that_asks_for_less_is_told_less(level, sessions, tmp_path):
    with started("c", "1.31.1", f"{PLAN}{level}", variables={env.REPORT: str(tmp_path)}) as caller:
        caller.session("")
        assert len(caller.lines) == 1
        assert caller.end() == 0
    found = [session for path in tmp_path.iterdir() for session in json.loads(path.read_text())["sessions"]]
    assert len(found) == sessions
    assert not any("runs" in session for session in found)
