"""The rows of the table of servers, without running any."""

import dataclasses

import pytest
from support.servers import lab, speed
from support.servers.record import BY_LIMIT, FILE, ROWS, SEEN, file, recorded, words
from support.servers.rows import processes

import fakemachine
import machines
from raddle import env


def test_no_two_rows_have_one_label():
    labels = [row.label for row in ROWS]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("path", [FILE, BY_LIMIT], ids=lambda path: path.name)
def test_what_is_recorded_says_of_the_rows_what_they_say(path):
    said = [words(row) for row in ROWS if file(row) == path]
    for record in recorded(path):
        assert {name: value for name, value in record.items() if name not in SEEN} in said


@pytest.mark.parametrize(
    ("ratio", "same", "slower"),
    [(0.96, 0.0, False), (0.94, 0.0, True), (0.94, 0.03, False), (0.5, 0.3, True), (3.0, 0.0, False)],
)
def test_what_is_below_stock_by_more_than_it_differs_from_itself_is_slower(ratio, same, slower):
    measured = speed.Speed(stock=1.0, raddle=ratio, ratio=(0.1, ratio, 9.0), same=(0.0, same))
    assert measured.is_slower == slower


@pytest.mark.parametrize("limit_cpus", processes.LIMITS_CPUS)
def test_both_objectives_have_the_same_plan_at_the_limits_of_the_table(limit_cpus, tmp_path):
    machines.write(fakemachine.files(lab.CPUS), tmp_path)
    row = dataclasses.replace(processes.ROWS[0], limit_cpus=limit_cpus)
    plans = []
    for objective in ("Latency", "Throughput"):
        container = lab.given(dataclasses.replace(row, policy={"objective": objective}), tmp_path)
        # How a quota that is no whole number would be cut.
        plans.append({**container.variables, env.PLAN: {**env.decode(container.variables[env.PLAN]), "floor": None}})
    assert plans[0] == plans[1]
