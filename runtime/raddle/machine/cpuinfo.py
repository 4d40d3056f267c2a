"""What /proc/cpuinfo says: the model and, for a tree from another machine, the architecture, the CPUs and their cores.

Each architecture has its own keys (show_cpuinfo below arch/ of the kernel), so that a fact is the first of several
keys. On a live machine the kernel makes this file up at every read, which is slow: only its first page is read,
and all of it where sysfs does not tell.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from raddle import errors, files
from raddle.cpus import cpuset
from raddle.machine import armcores
from raddle.machine.tree import Problems

PATH = "proc/cpuinfo"

_MODEL_LENGTH = 128
# 4096 CPUs with the flags of an x86 CPU each.
_LIMIT_BYTES = 16 * 1024 * 1024

# In the order of how much they say: x86, ia64, newer Arm; LoongArch; POWER, SPARC; older Arm; Alpha, MIPS; RISC-V.
_MODEL_KEYS = ("model name", "Model Name", "cpu model", "cpu", "Processor", "uarch", "family")
# Where a folder says what `uname -m` printed: in the kernel's own file (Linux 6.1), and in one that hwloc wrote.
_KERNEL = ("proc/sys/kernel/arch", "")
_HWLOC = ("proc/hwloc-nofile-info", "Architecture: ")
# The end of a kernel's release, where distributions name the architecture: 3.10.0-957.el7.ppc64le.
_RELEASE = re.compile(r"Linux version \S+[.](x86_64|i686|aarch64|ppc64le|ppc64|s390x|riscv64|loongarch64|ia64)\b")
_ARM_PLATFORM = re.compile(r"\((v[4-9][a-z]*)\)$")
_OLD_POWER = re.compile(r"(POWER[4-7](?![0-9])|PPC970|Cell Broadband)")


class Core(NamedTuple):
    """Who designed an Arm core, and which one it is; see armcores."""

    implementer: int
    part: int


class Processor(NamedTuple):
    """The machine's CPUs in words; "" where unknown. `architecture` is as `uname -m` prints it."""

    model: str
    architecture: str


class Listing(NamedTuple):
    """The CPUs that cpuinfo lists: all that are online. `cores` and `sockets` are () where they can't be told."""

    online: int = 0
    cores: tuple[int, ...] = ()
    sockets: tuple[int, ...] = ()


def read_processor(root: str, problems: Problems) -> Processor:
    """The first CPU's model, and the architecture: this process's own where root is "/"."""
    try:
        text = files.read_head(os.path.join(root, PATH))
    except OSError as error:
        problems.add_error(PATH, error)
        text = None
    facts: dict[str, str] = {}
    for line in (text or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            facts.setdefault(key.strip(), " ".join(value.split()))
    if text is not None and not facts:
        problems.add(PATH, "has no line of the form key : value")
    if os.path.normpath(root) == "/":
        return Processor(_model(facts), os.uname().machine)
    return Processor(
        _model(facts), _word(root, *_KERNEL) or _architecture(facts) or _word(root, *_HWLOC) or _built(root)
    )


def _model(facts: dict[str, str]) -> str:
    model = ""
    if "CPU part" in facts:
        implementer, part = facts.get("CPU implementer", "?"), facts["CPU part"]
        core = _core(implementer, part)
        model = armcores.name(*core) if core else ""
        model = model or f"implementer {implementer} part {part}"
    elif facts.get("vendor_id") == "IBM/S390":
        # "processor 0", or another where that one is off.
        first = next((value for key, value in facts.items() if key.startswith("processor ")), "")
        machine = first.rpartition("machine = ")[2]
        model = f"IBM/S390 machine {machine}" if machine else "IBM/S390"
    else:
        # "family : 32" of an Itanium is a number and no name.
        model = next((facts[key] for key in _MODEL_KEYS if facts.get(key) and not facts[key].isdigit()), "")
    return "".join(char for char in model if char.isprintable())[:_MODEL_LENGTH]


def _core(implementer: str, part: str) -> Core | None:
    try:
        return Core(int(implementer, 16), int(part, 16))
    except ValueError as error:
        errors.let_through(error)
        return None


def _word(root: str, path: str, before: str) -> str:
    result = re.search(f"^{before}([a-z0-9_]{{2,32}})$", _text(root, path), re.MULTILINE)
    return result.group(1) if result else ""


def _built(root: str) -> str:
    result = _RELEASE.match(_text(root, "proc/version"))
    return result.group(1) if result else ""


def _architecture(facts: dict[str, str]) -> str:
    """The architecture of these keys; "" for POWER8 and later, which hide the byte order that is half of the name."""
    if "CPU implementer" in facts:
        platform = _ARM_PLATFORM.search(facts.get("model name") or facts.get("Processor") or "")
        if platform:
            return "arm" + platform.group(1)
        return "aarch64" if facts.get("CPU architecture") in ("8", "AArch64") else ""
    if facts.get("vendor_id") == "IBM/S390":
        return "s390x" if "zarch" in facts.get("features", "zarch").split() else "s390"
    if facts.get("arch") == "IA-64":
        return "ia64"
    if "flags" in facts:
        return "x86_64" if "lm" in facts["flags"].split() else "i686"
    if facts.get("isa", "").startswith("rv64"):
        return "riscv64"
    if facts.get("CPU Family") == "Loongson-64bit":
        return "loongarch64"
    if facts.get("type") in ("sun4u", "sun4v"):
        return "sparc64"
    # Linux runs little endian on POWER8 and later only (the ABI of ppc64le asks for its instructions).
    return "ppc64" if _OLD_POWER.match(facts.get("cpu", "")) else ""


def _text(root: str, path: str, limit_bytes: int = files.LIMIT_BYTES) -> str:
    try:
        return files.read_text(os.path.join(root, path), to_end=True, limit_bytes=limit_bytes)
    except (OSError, ValueError) as error:
        errors.let_through(error)
        return ""


def _entries(root: str) -> dict[int, dict[str, str]]:
    """CPU -> its lines, from all of the file; keys of before the first "processor" hold for every CPU."""
    result: dict[int, dict[str, str]] = {}
    common: dict[str, str] = {}
    current = common
    for line in _text(root, PATH, _LIMIT_BYTES).splitlines():
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if key.startswith("processor ") and value:
            # s390: "processor 0: version = 00, ...".
            key, value = "processor", key[len("processor ") :]
        if key == "processor" and value.isascii() and value.isdigit() and len(value) <= 5:
            current = result.setdefault(int(value), dict(common))
        else:
            current[key] = value
    return {cpu: facts for cpu, facts in result.items() if cpu < cpuset.MAX_CPUS}


def arm_cores(root: str) -> dict[int, Core]:
    """CPU -> which core it is, for every CPU that cpuinfo shows with one."""
    cores = {
        cpu: _core(facts.get("CPU implementer", ""), facts.get("CPU part", "")) for cpu, facts in _entries(root).items()
    }
    return {cpu: core for cpu, core in cores.items() if core is not None}


def read_listing(root: str) -> Listing:
    """The CPUs online and, on x86, their cores and sockets: for a tree without sysfs.

    "physical id" and "core id" tell only where each socket has as many CPUs and cores as it says ("siblings", "cpu
    cores"): some AMD sockets number their cores from 0 twice, and a Xen guest may number all its CPUs 0.
    """
    entries = _entries(root)
    online = cpuset.of(set(entries))
    sockets: dict[str, int] = {}
    cores: dict[tuple[str, str], int] = {}
    said: dict[str, tuple[str | None, str | None]] = {}
    for cpu, facts in entries.items():
        if "physical id" not in facts or "core id" not in facts:
            return Listing(online)
        socket, core = facts["physical id"], facts["core id"]
        sockets[socket] = sockets.get(socket, 0) | 1 << cpu
        cores[socket, core] = cores.get((socket, core), 0) | 1 << cpu
        said[socket] = facts.get("siblings"), facts.get("cpu cores")
    if any(said[socket][0] != str(cpuset.count(cpus)) for socket, cpus in sockets.items()):
        return Listing(online)
    counted: dict[str, int] = {}
    for socket, _ in cores:
        counted[socket] = counted.get(socket, 0) + 1
    sure = all(said[socket][1] == str(count) for socket, count in counted.items())
    return Listing(online, tuple(cores.values()) if sure else (), tuple(sockets.values()))
