"""A made-up machine: programs of every kind see its CPUs and the container's quota."""

import json
import subprocess
import sys

import pytest
from support.runtimes import families_lab

import fakemachine

pytestmark = pytest.mark.kernel
LOOK = """
import json, os
from pathlib import Path
os.sched_setaffinity(0, [40, 41])
print(json.dumps({
    "cpus": [os.cpu_count(), os.sysconf("SC_NPROCESSORS_ONLN"), os.sysconf("SC_NPROCESSORS_CONF")],
    "cpuinfo": Path("/proc/cpuinfo").read_text().count("processor\\t"),
    "sysfs": Path("/sys/devices/system/cpu/online").read_text().strip(),
    "bound": sorted(os.sched_getaffinity(0)),
    "quota": [path.read_text().split()[0] for path in map(Path, (
        "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")) if path.exists()],
}))
"""


@pytest.fixture(scope="module")
def fake():
    with fakemachine.started(64, 1.5) as made:
        yield made


def said(fake, *command):
    return subprocess.run(
        fake.command(list(map(str, command))), capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_a_dynamic_program_sees_its_cpus_and_may_be_bound_to_them(fake):
    seen = json.loads(said(fake, sys.executable, "-c", LOOK))
    assert seen == {
        "cpus": [64, 64, 64],
        "cpuinfo": 64,
        "sysfs": "0-63",
        "bound": [40, 41],
        "quota": ["150000"] * len(seen["quota"]),
    }
    assert seen["quota"]


def test_a_static_program_does_as_well(fake):
    assert json.loads(said(fake, families_lab.go()))["count"] == 64


def test_a_program_that_fails_fails_with_its_own_status(fake):
    assert subprocess.run(fake.command(["sh", "-c", "exit 7"]), check=False).returncode == 7


def test_the_processes_that_run_there_are_known_and_the_helper_beside_them_is_none(fake):
    with subprocess.Popen(fake.command(["cat"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        process.stdout.readline()
        assert fake.pids() == [process.pid]
        process.stdin.close()
