"""What this machine did while something was measured: in it, and beside it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raddle_operator.local import quota

# A share of the machine that others may have without that being said.
QUIET_PERCENT: Final = 10.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Totals at one moment, in seconds since the machine was started. None: not to be had here.

    `stalled_s` is how long, of all time, some task of the machine waited for a CPU (PSI). `mhz` is the mean of the
    CPUs' frequencies now.
    """

    at_s: float
    total_s: float
    busy_s: float
    steal_s: float
    usage: quota.Usage
    stalled_s: float | None
    mhz: float | None


def read(usage: quota.Usage) -> Reading:
    """The machine now. `usage` is what is measured has used until now."""
    # proc(5), /proc/stat: user nice system idle iowait irq softirq steal; guest time is within user.
    spent = [int(word) / _TICKS_PER_S for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle_s, steal_s = spent[3] + spent[4], spent[7]
    return Reading(
        at_s=time.perf_counter(),
        total_s=sum(spent),
        busy_s=sum(spent) - idle_s - steal_s,
        steal_s=steal_s,
        usage=usage,
        stalled_s=_stalled_s(),
        mhz=_mhz(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """What happened between two readings. Shares in percent, of the whole machine where nothing else is said.

    `others_percent` is the CPU time of processes that are neither measured nor known to belong to the measuring.
    `stalled_percent` is of the time, for the machine, `own_stalled_percent` for the group. None: not to be had here.
    """

    seconds: float
    usage: quota.Usage
    steal_percent: float
    others_percent: float
    stalled_percent: float | None
    own_stalled_percent: float | None
    mhz: float | None

    @property
    def figures(self) -> Iterator[tuple[str, float]]:
        """Yields what is known of it, by name."""
        names = ("steal_percent", "others_percent", "stalled_percent", "own_stalled_percent", "mhz")
        for name in names:
            value = getattr(self, name)
            if value is not None:
                yield name, round(value, 1)

    @property
    def disturbed(self) -> tuple[str, ...]:
        """What of it may have changed the figures, for people; () where the machine was quiet."""
        said = []
        if self.steal_percent + self.others_percent > QUIET_PERCENT:
            if self.others_percent > self.steal_percent:
                said.append(f"other processes took {self.others_percent:.0f} % of the machine")
            if self.steal_percent > QUIET_PERCENT / 4:
                said.append(f"the hypervisor took {self.steal_percent:.0f} % (steal)")
        return tuple(said)


def between(before: Reading, after: Reading, known_s: float) -> Interference:
    """What happened; `known_s` is CPU time of the measuring itself and of what belongs to the conditions."""
    used = after.usage.since(before.usage)
    total_s = max(after.total_s - before.total_s, 1 / _TICKS_PER_S)
    seconds = after.at_s - before.at_s
    others_s = after.busy_s - before.busy_s - used.cpu_s - known_s
    return Interference(
        seconds=seconds,
        usage=used,
        steal_percent=100 * (after.steal_s - before.steal_s) / total_s,
        others_percent=max(0.0, 100 * others_s / total_s),
        stalled_percent=_share(before.stalled_s, after.stalled_s, seconds),
        own_stalled_percent=_share(before.usage.stalled_s, after.usage.stalled_s, seconds),
        mhz=after.mhz,
    )


def _share(before_s: float | None, after_s: float | None, seconds: float) -> float | None:
    return None if before_s is None or after_s is None else 100 * (after_s - before_s) / max(seconds, 1e-6)


def _stalled_s() -> float | None:
    try:
        return quota.stalled_s(Path("/proc/pressure/cpu").read_text())
    except OSError:
        return None


def _mhz() -> float | None:
    """cpufreq.rst: scaling_cur_freq is what the CPU runs at, in kHz."""
    result = []
    for path in Path("/sys/devices/system/cpu/cpufreq").glob("policy*/scaling_cur_freq"):
        try:
            result.append(int(path.read_text()) / 1000)
        except (OSError, ValueError):
            continue
    return statistics.fmean(result) if result else None
