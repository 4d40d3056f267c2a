"""Records what a shape's kernel says in /sys and /proc as one of tests/machines/*.txt."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import machines
from cluster.progress import Progress
from vm import disk, programs, qemu
from vm.errors import VMError
from vm.shapes import Shape, get

RECORD = Path(__file__).parent / "guest" / "record.sh"
# A machine of 240 CPUs takes many minutes where the host is busy.
TIMEOUT_SECONDS = 1800
# Only what a reader of topology may want: the rest is noise in a repository.
KEPT = (
    "online offline present possible isolated kernel_max active control level type size id shared_cpu_list "
    "shared_cpu_map core_id core_cpus core_cpus_list thread_siblings thread_siblings_list physical_package_id "
    "package_cpus package_cpus_list core_siblings core_siblings_list die_id die_cpus die_cpus_list cpulist cpumap "
    "distance has_cpu has_memory cpuinfo boot_id meminfo"
)
# Without masks, which grow with the square of the CPUs, and without the second name of each list.
KEPT_SLIM = (
    "online offline present possible isolated kernel_max active core_id core_cpus_list physical_package_id "
    "package_cpus_list die_id die_cpus_list cpulist distance has_cpu has_memory cpuinfo boot_id meminfo"
)
SLIM_L3 = ("level", "id", "shared_cpu_list", "size")


def record(name: str, out: Path, kernel: Path, progress: Progress) -> int:
    """Boot the shape of this name and write its recording to `out`; the number of files in it.

    Raises VMError when the guest does not come to its end.
    """
    shape = get(name)
    with tempfile.TemporaryDirectory(prefix="raddle-lab-") as folder:
        work = Path(folder)
        root, initramfs = work / "root", work / "initramfs"
        root.mkdir()
        (root / "kept").write_text(f"{KEPT_SLIM} {' '.join(SLIM_L3)}" if shape.slim else KEPT)
        disk.initramfs(initramfs, root, RECORD)
        qemu.run(
            shape,
            qemu.Guest(kernel=kernel, initramfs=initramfs),
            work,
            timeout_s=TIMEOUT_SECONDS,
            boot_s=TIMEOUT_SECONDS,
            silent_s=TIMEOUT_SECONDS,
            watch=lambda: progress.tick(f"recording {name}"),
        )
        if "DONE" not in (work / "log").read_text(errors="replace"):
            raise VMError(f"the guest was not recorded\n{qemu.last_lines(work)}")
        recorded = {
            path: text
            for path, text in _recorded(work / "results")
            if not (shape.slim and "/cache/" in path and "/index3/" not in path)
        }
    out.write_text(machines.pack(recorded, comment(name, shape, kernel)))
    return len(recorded)


def comment(name: str, shape: Shape, kernel: Path) -> str:
    """The recording's first lines."""
    text = f"Recorded by `python -m lab record {name}`: QEMU (TCG), Linux {programs.kernel_version(kernel)}."
    slim = "\nWithout masks, cpufreq and the caches below L3, to keep the file small." if shape.slim else ""
    return f"{text}\n{shape.shows[0].upper()}{shape.shows[1:]}.{slim}"


def _recorded(tgz: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(tgz) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            # Power management's `control` is no topology: only that of smt/ is.
            if stream is None or "/power/" in member.name:
                continue
            text = stream.read().decode("ascii", "replace")
            if member.name.endswith("cpuinfo"):
                # Each CPU says nearly the same; the first shows the form.
                text = text.split("\n\n")[0] + "\n"
            if member.name.endswith("meminfo"):
                text = "\n".join(line for line in text.splitlines() if "MemTotal" in line) + "\n"
            yield member.name, text
