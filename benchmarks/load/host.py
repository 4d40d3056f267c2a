"""A faked host: other files in place of those from which ONNX Runtime counts the machine's cores.

ONNX Runtime (through pytorch/cpuinfo, src/x86/linux/init.c) counts physical cores from /proc/cpuinfo and
/sys/devices/system/cpu/{possible,present}. In a mount namespace of its own the child sees generated files there, so
an unmodified runtime makes the pool that it would make on that machine. The CPUs stay those that are really here:
times say what an oversized pool does to a limit, not how fast such a machine is. `online` and the affinity mask are
not faked, so libraries that read those (OpenBLAS) still see the real count.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_CPUINFO = "/proc/cpuinfo"
_LISTS = ("/sys/devices/system/cpu/possible", "/sys/devices/system/cpu/present")


class NotFakedError(Exception):
    """No mount namespace can be had here, or this architecture's cpuinfo is not understood; the message says which."""


def cpuinfo(one_cpu: str, cores: int) -> str:
    """/proc/cpuinfo of one socket with `cores` single-threaded cores, each like the block `one_cpu` (x86).

    Raises NotFakedError if the block does not have the fields that tell cores apart.
    """
    own = {"processor", "core id", "apicid", "initial apicid"}
    counts = {"siblings", "cpu cores"}
    lines = [line.partition(":") for line in one_cpu.strip().splitlines()]
    missing = (own | counts) - {key.strip() for key, _, _ in lines}
    if missing:
        raise NotFakedError(f"/proc/cpuinfo has no {', '.join(sorted(missing))} here")
    blocks = []
    for core in range(cores):
        values = {**dict.fromkeys(own, str(core)), **dict.fromkeys(counts, str(cores)), "physical id": "0"}
        blocks.append("".join(f"{key}: {values.get(key.strip(), value.strip())}\n" for key, _, value in lines))
    return "\n".join(blocks) + "\n"


def faked(argv: list[str], cores: int, folder: Path) -> list[str]:
    """The command that runs `argv` where the machine seems to have `cores` cores; its files go to `folder`.

    Raises NotFakedError with the reason where that can't be done.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        raise NotFakedError("there is no unshare command here")
    one_cpu = Path(_CPUINFO).read_text().split("\n\n")[0]
    (folder / "cpuinfo").write_text(cpuinfo(one_cpu, cores))
    (folder / "cpus").write_text(f"0-{cores - 1}\n")
    mounts = [(folder / "cpuinfo", _CPUINFO), *((folder / "cpus", path) for path in _LISTS)]
    script = "".join(f"mount --bind '{source}' {target} && " for source, target in mounts)
    return [unshare, "--mount", "--propagation", "private", "/bin/sh", "-ec", script + 'exec "$@"', "sh", *argv]


def available(folder: Path) -> str | None:
    """None where a faked host can be had, else the reason why not."""
    try:
        command = faked(["/bin/cat", _LISTS[0]], 16, folder)
    except NotFakedError as error:
        return str(error)
    seen = subprocess.run(command, check=False, capture_output=True, text=True)
    return None if seen.stdout.strip() == "0-15" else f"no mount namespace: {seen.stderr.strip()}"
