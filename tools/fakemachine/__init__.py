"""Runs any program so that it sees a machine of many CPUs, in a container with a CPU quota, on a small machine.

    with fakemachine.started(64, 2) as fake:
        subprocess.run(fake.command(["python", "serve.py"]))

It sees them in /sys/devices/system, /proc/cpuinfo, /proc/stat and its own affinity, so static programs do as well. The
quota is a real cgroup's, which it sees at /sys/fs/cgroup, as in a container. What it does not see: CPUID, which is
the real machine's, and Cpus_allowed in /proc/self/status. As root only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import machines
from raddle_operator.local import quota
from runtimes import fetching
from unavailable import UnavailableError

SOURCE: Final = Path(__file__).with_name("guise.c")
# A cgroup namespace has the group for its root, so a hierarchy that is mounted in it shows what a container sees. With
# cgroup v1 the file of v2 stands beside: readers look for either.
_INSIDE: Final = """
set -e
folder=$1 maximum=$2; shift 2
for part in sys/devices/system/cpu sys/devices/system/node proc/cpuinfo proc/stat; do
    mount --bind "$folder/$part" "/$part"
done
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    umount -l /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
else
    # What was mounted would stay in /proc/self/mountinfo, with roots outside the namespace.
    umount -lR /sys/fs/cgroup
    mount -t tmpfs none /sys/fs/cgroup
    echo "$maximum" > /sys/fs/cgroup/cpu.max
    while IFS=: read -r _ controllers _; do
        case $controllers in ''|name=*) continue ;; esac
        mkdir "/sys/fs/cgroup/$controllers"
        mount -t cgroup -o "$controllers" none "/sys/fs/cgroup/$controllers"
    done < /proc/self/cgroup
    for name in cpuset.cpus cpuset.effective_cpus; do
        if [ -f /sys/fs/cgroup/cpuset/$name ]; then
            mount --bind "$folder/sys/devices/system/cpu/online" /sys/fs/cgroup/cpuset/$name
        fi
    done
fi
exec "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fake:
    """A machine that is not there. `root` has its sys/ and proc/; `prefix` starts a command there."""

    root: Path
    prefix: tuple[str, ...]
    group: quota.Group

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command, as it starts there."""
        return [*self.prefix, *argv]

    def pids(self) -> list[int]:
        """The processes that run there now."""
        return [pid for pid in self.group.pids() if _name(pid) not in {"", "guise"}]


def _name(pid: int) -> str:
    """What the process calls itself; "" where it is gone."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "comm").read_text().strip()
    return ""


@contextlib.contextmanager
def started(cpus: int, limit_cpus: float) -> Iterator[Fake]:
    """A machine of so many cores without SMT, one socket, and a container with this limit there.

    Its processes are killed on exit. Raises UnavailableError where this machine can't have it.
    """
    if os.geteuid() != 0:
        raise UnavailableError("a machine of other CPUs is made as root")
    program = _program()
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-machine-")))
        root.chmod(0o755)
        machines.write(files(cpus), root)
        try:
            group = stack.enter_context(quota.limited(limit_cpus))
        except quota.UnavailableError as error:
            raise UnavailableError(str(error)) from None
        maximum = f"{quota.in_us(limit_cpus)} {quota.PERIOD_US}"
        mounts = ("unshare", "--mount", "--cgroup", "sh", "-c", _INSIDE, "guise", str(root), maximum)
        prefix = (*group.command([]), *mounts, str(program), str(cpus))
        tried = subprocess.run([*prefix, "nproc"], capture_output=True, text=True, check=False, timeout=60)
        if tried.stdout.strip() != str(cpus):
            raise UnavailableError(f"no machine of {cpus} CPUs can be made up here: {tried.stderr.strip()[-200:]}")
        yield Fake(root=root, prefix=prefix, group=group)


def _program() -> Path:
    """The compiled guise.c."""
    compiler = fetching.tool("gcc")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    with fetching.made(fetching.CACHE / f"guise-{digest}") as folder:
        if folder:
            fetching.fetch(compiler, "-O2", "-Wall", "-Werror", SOURCE, "-o", folder / "guise")
    return fetching.CACHE / f"guise-{digest}" / "guise"


def files(cpus: int) -> dict[str, str]:
    """The machine's files, path to text. Its CPUs are of this machine's kind."""
    result = machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=cpus, threads=1)
    every, top = _mask(range(cpus), cpus), "sys/devices/system"
    for cpu in range(cpus):
        own = _mask([cpu], cpus)
        result[f"{top}/cpu/cpu{cpu}/online"] = "1\n"
        for name in ("core_cpus", "thread_siblings"):
            result[f"{top}/cpu/cpu{cpu}/topology/{name}"] = own
        for name in ("package_cpus", "core_siblings", "die_cpus"):
            result[f"{top}/cpu/cpu{cpu}/topology/{name}"] = every
        for index, (kind, size) in enumerate((("Data", 32), ("Instruction", 32), ("Unified", 512), ("Unified", 32768))):
            cache = f"{top}/cpu/cpu{cpu}/cache/index{index}"
            result[f"{cache}/type"], result[f"{cache}/size"] = f"{kind}\n", f"{size}K\n"
            result[f"{cache}/shared_cpu_map"] = every if index == 3 else own
            result[f"{cache}/coherency_line_size"] = "64\n"
    result[f"{top}/cpu/kernel_max"] = "8191\n"
    result |= {f"{top}/node/{name}": "0\n" for name in ("online", "possible", "has_cpu", "has_memory")}
    result[f"{top}/node/node0/cpumap"] = every
    result["proc/cpuinfo"] = "".join(_cpuinfo(cpu, cpus) for cpu in range(cpus))
    result["proc/stat"] = _stat(cpus)
    return result


def _mask(ids: Sequence[int] | range, cpus: int) -> str:
    """A kernel's bit mask: 00000000,00000001."""
    value = sum(1 << cpu for cpu in ids)
    words = [f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in range((cpus + 31) // 32)]
    return ",".join(reversed(words)) + "\n"


def _cpuinfo(cpu: int, cpus: int) -> str:
    """One CPU of /proc/cpuinfo: this machine's first, with other numbers."""
    numbers = {"processor": cpu, "physical id": 0, "core id": cpu, "apicid": cpu, "initial apicid": cpu}
    numbers |= {"siblings": cpus, "cpu cores": cpus}
    lines = []
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name = line.partition(":")[0].rstrip()
        lines.append(f"{line.partition(':')[0]}: {numbers[name]}" if name in numbers else line)
    return "\n".join(lines) + "\n\n"


def _stat(cpus: int) -> str:
    """/proc/stat as it is, with the first CPU's line for each."""
    lines = Path("/proc/stat").read_text().splitlines()
    of_one = next(line for line in lines if line.startswith("cpu0 ")).removeprefix("cpu0 ")
    rest = [line for line in lines if not line.startswith("cpu")]
    return "\n".join([lines[0], *(f"cpu{cpu} {of_one}" for cpu in range(cpus)), *rest]) + "\n"
