"""Machines as files: packs a sysfs tree into one readable text file, unpacks it, and makes up regular ones.

    path("2s16c32t")      the folder that stands for "/" of that machine: it holds sys/ and proc/

The archives are tests/machines/*.txt. A section names a directory, a line one of its files; lines that start with a
tab continue the file above. A section may name a directory for each number of a list: a line then holds the file's text
in each of them, in order, `x2` after one that comes twice in a row, or the one text that all of them have.

    # how it was made
    [sys/devices/system/cpu]
    online = 0-3
    [sys/devices/system/cpu/cpu{0-3}/topology]
    core_id = 0 x2; 1 x2
    die_id = 0
    [proc]
    cpuinfo = processor : 0
        model name : ...

Nothing of Raddle is imported: the local cluster, the demo, the benchmarks and the tests all use it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_NUMBER = re.compile(r"(?<=[a-z])(?:0|[1-9]\d*)(?=/|$)")
_RUN = re.compile(r"(.*?)(?: x(\d+))?")
# What _RUN can't take for anything else.
_PLAIN = re.compile(r"(?! )(?!.* x\d+$)[^;\n]*")
_ROOT = Path(__file__).resolve().parent.parent
ARCHIVES = _ROOT / "tests" / "machines"
UNPACKED = _ROOT / "build" / "machines"


def names() -> list[str]:
    """The machines that `path` knows, sorted."""
    return sorted(archive.stem for archive in ARCHIVES.glob("*.txt"))


@functools.cache
def path(name: str) -> Path:
    """The unpacked machine in build/machines, to be read only. Raises FileNotFoundError for an unknown name."""
    archive = ARCHIVES / f"{name}.txt"
    if not archive.is_file():
        raise FileNotFoundError(f"no machine {name!r}; there are {', '.join(names())}")
    text = archive.read_text()
    made_of = hashlib.sha256(text.encode() + Path(__file__).read_bytes())
    kept = UNPACKED / f"{name}-{made_of.hexdigest()[:12]}"
    if not kept.exists():
        UNPACKED.mkdir(parents=True, exist_ok=True)
        new = unpack(text, Path(tempfile.mkdtemp(dir=UNPACKED)))
        new.chmod(0o755)
        try:
            new.rename(kept)
        except OSError:
            # Another process was faster.
            shutil.rmtree(new)
    return kept


def unpack(archive: str, into: Path) -> Path:
    """Writes the archive's files below `into`, which is returned. Raises ValueError for a malformed line."""
    return write(files_in(archive), into)


def write(contents: Mapping[str, str], into: Path) -> Path:
    """Writes files (path to text; a link as NUL and its target) below `into`, which is returned."""
    for folder in {name.rpartition("/")[0] for name in contents}:
        (into / folder).mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        target = into / name
        if content.startswith("\0"):
            target.symlink_to(content[1:])
        else:
            target.write_text(content)
    return into


def files_in(archive: str) -> dict[str, str]:
    """Path to text of each file. Raises ValueError for a malformed line."""
    result: dict[str, str] = {}
    names, last = [""], ""
    for number, line in enumerate(archive.split("\n"), 1):
        if line.startswith("\t"):
            result[last] += line[1:] + "\n"
        elif line.startswith("[") and line.endswith("]"):
            names = _directories(line[1:-1])
            if any(name.startswith("/") or ".." in name.split("/") for name in names):
                raise ValueError(f"line {number}: {line} leads outside the machine")
        elif " =" in line and not line.startswith("#"):
            base, _, text = line.partition(" =")
            texts = _texts(text.removeprefix(" "), len(names))
            if len(texts) != len(names):
                raise ValueError(f"line {number}: {base} has {len(texts)} texts for {len(names)} directories")
            result |= {f"{name}/{base}": f"{text}\n" for name, text in zip(names, texts, strict=True)}
            last = f"{names[-1]}/{base}"
        elif line and not line.startswith("#"):
            raise ValueError(f"line {number}: {line[:60]!r} is neither [directory] nor name = text")
    return result


def _directories(section: str) -> list[str]:
    before, brace, rest = section.partition("{")
    numbers, _, after = rest.partition("}")
    return [f"{before}{number}{after}" for number in as_numbers(numbers)] if brace else [section]


def _texts(line: str, wanted: int) -> list[str]:
    if wanted == 1:
        return [line]
    runs = [_RUN.fullmatch(part.removeprefix(" ")) for part in f" {line}".split(";")]
    texts = [run[1] for run in runs if run for _ in range(int(run[2] or 1))]
    return texts * wanted if len(texts) == 1 else texts


def pack(contents: Mapping[str, str], comment: str) -> str:
    """The archive of these files (path to text): every text ends with one newline, and none begins with a tab."""
    families: dict[tuple[str, str], dict[int, str]] = {}
    for path, content in contents.items():
        (directory, _, base), text = path.rpartition("/"), content.removesuffix("\n")
        number = _NUMBER.search(directory)
        if number and _PLAIN.fullmatch(text):
            families.setdefault((_NUMBER.sub("{}", directory, count=1), base), {})[int(number[0])] = text
        else:
            families[directory, base] = {0: text.replace("\n", "\n\t")}
    sections: dict[str, list[str]] = {}
    for (directory, base), item in sorted(families.items()):
        numbers = as_list(sorted(item))
        runs = [(text, len(list(run))) for text, run in itertools.groupby(item[number] for number in sorted(item))]
        line = runs[0][0] if len(runs) == 1 else "; ".join(text + f" x{n}" * (n > 1) for text, n in runs)
        section = directory.replace("{}", numbers if len(item) == 1 else f"{{{numbers}}}")
        sections.setdefault(section, []).append(f"{base} = {line}".rstrip(" "))
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join([*head, *(line for name, lines in sections.items() for line in (f"[{name}]", *lines))]) + "\n"


def synthesize(
    *, sockets: int = 2, numa_nodes: int = 2, l3_domains: int = 16, cores: int = 128, threads: int = 2
) -> dict[str, str]:
    """The files of a regular x86 machine: path to content. Counts are of the whole machine; each must divide the next.

    CPUs are numbered as Linux does on most servers: first one thread of each core, then the second threads.
    """
    total = cores * threads

    def share(parts: int, core: int) -> list[int]:
        size = cores // parts
        first = core // size * size
        return [cpu + thread * cores for thread in range(threads) for cpu in range(first, first + size)]

    cpu_root, node_root = "sys/devices/system/cpu", "sys/devices/system/node"
    files = {f"{cpu_root}/{name}": f"0-{total - 1}\n" for name in ("online", "possible", "present")}
    files |= {f"{cpu_root}/{name}": "\n" for name in ("offline", "isolated")}
    files[f"{cpu_root}/smt/active"] = f"{int(threads > 1)}\n"
    for cpu in range(total):
        core = cpu % cores
        siblings, package = as_list(share(cores, core)), as_list(share(sockets, core))
        top, cache = f"{cpu_root}/cpu{cpu}/topology", f"{cpu_root}/cpu{cpu}/cache"
        for name in ("core_cpus_list", "thread_siblings_list"):
            files[f"{top}/{name}"] = siblings + "\n"
        for name in ("package_cpus_list", "core_siblings_list", "die_cpus_list"):
            files[f"{top}/{name}"] = package + "\n"
        files[f"{top}/core_id"] = f"{core % (cores // sockets)}\n"
        files[f"{top}/physical_package_id"] = f"{core // (cores // sockets)}\n"
        files[f"{top}/die_id"] = "0\n"
        l3 = core // (cores // l3_domains)
        for index, (level, shared) in enumerate([(1, siblings), (1, siblings), (2, siblings)]):
            files[f"{cache}/index{index}/level"] = f"{level}\n"
            files[f"{cache}/index{index}/shared_cpu_list"] = shared + "\n"
        files[f"{cache}/index3/level"] = "3\n"
        files[f"{cache}/index3/id"] = f"{l3}\n"
        files[f"{cache}/index3/shared_cpu_list"] = as_list(share(l3_domains, core)) + "\n"
        files[f"{cpu_root}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "3700000\n"
    for node in range(numa_nodes):
        files[f"{node_root}/node{node}/cpulist"] = as_list(share(numa_nodes, node * (cores // numa_nodes))) + "\n"
        files[f"{node_root}/node{node}/distance"] = (
            " ".join("10" if other == node else "32" for other in range(numa_nodes)) + "\n"
        )
        files[f"{node_root}/node{node}/meminfo"] = f"Node {node} MemTotal:       263849984 kB\n"
    one = "processor\t: {}\nvendor_id\t: AuthenticAMD\nmodel name\t: Synthetic\nflags\t\t: fpu lm\n"
    files["proc/cpuinfo"] = "\n".join(one.format(cpu) for cpu in range(total))
    return files


def as_list(cpus: list[int]) -> str:
    """A kernel list string: [0, 1, 2, 8] -> "0-2,8"."""
    parts: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def as_numbers(text: str) -> list[int]:
    """The numbers of a kernel list string: "0-2,8" -> [0, 1, 2, 8]."""
    ends = [part.partition("-") for part in text.split(",")]
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def main(argv: list[str] | None = None) -> int:
    """`machines.py` lists the machines; `machines.py NAME FOLDER` unpacks one."""
    parser = argparse.ArgumentParser(description="Lists recorded machines, or unpacks one into a folder.")
    parser.add_argument("name", nargs="?", choices=names())
    parser.add_argument("folder", nargs="?", type=Path)
    args = parser.parse_args(argv)
    if args.name is None or args.folder is None:
        print("\n".join(names()))
        return 0
    print(unpack((ARCHIVES / f"{args.name}.txt").read_text(), args.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
