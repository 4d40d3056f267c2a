"""Raddle in guests: real Linux kernels of any CPU and NUMA shape under QEMU (`make lab`).

QEMU's emulated CPUs can hang, and threads that are looked at can be late, where the machine is busy: a guest that fails
or shows something else than expected is booted again.
"""

import pytest

from lab import limits, real, table
from lab.scenarios import SCENARIOS

pytestmark = [pytest.mark.lab, pytest.mark.flaky(reruns=2), pytest.mark.timeout(real.GUEST_SECONDS)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: f"{one.shape}-{one.name}")
def test_the_kernel_shows_threads_and_memory_where_the_specification_says(scenario, guests, record_property):
    verdicts = guests.verdicts(scenario)
    wrong = [text for one in verdicts for text in one.wrong]
    if wrong:
        guests.forget(scenario)
    record_property("sessions", [table.row(one) for one in verdicts])
    assert not wrong, scenario.why


@pytest.mark.parametrize("checks", limits.SHAPES)
def test_cgroups_of_version_2_are_read_and_made_as_the_kernel_enforces_them(checks, prepared, tmp_path, progress):
    found = limits.run(checks, prepared, tmp_path, progress)
    assert {check: wrong for check, wrong in found.items() if wrong} == {}
    assert found
