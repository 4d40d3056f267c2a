"""Machines as files: packs a sysfs tree into one readable text file, unpacks it, and makes up regular ones.

    path("2s16c32t")      the folder that stands for "/" of that machine: it holds sys/ and proc/

The archives are tests/machines/*.txt. A section names a directory, a line one of its files; lines
that start with a tab continue the file above. `name -> target` is a symbolic link.

    # how it was made
    [sys/devices/system/cpu]
    online = 0-31
    [proc]
    cpuinfo = processor : 0
        model name : ...

Nothing of Raddle is imported: the local cluster, the demo, the benchmarks and the tests all use it.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ARCHIVES = Path(__file__).resolve().parent.parent / "tests" / "machines"


def names() -> list[str]:
    """The machines that `path` knows, sorted."""
    return sorted(archive.stem for archive in ARCHIVES.glob("*.txt"))


@functools.cache
def path(name: str) -> Path:
    """The unpacked machine; it is removed when this process ends. Raises FileNotFoundError for an unknown name."""
    archive = ARCHIVES / f"{name}.txt"
    if not archive.is_file():
        raise FileNotFoundError(f"no machine {name!r}; there are {', '.join(names())}")
    into = Path(tempfile.mkdtemp(prefix=f"raddle-machine-{name}-"))
    atexit.register(shutil.rmtree, into, ignore_errors=True)
    return unpack(archive.read_text(), into)


def unpack(archive: str, into: Path) -> Path:
    """Writes the archive's files below `into`, which is returned. Raises ValueError for a malformed line."""
    for name, content in files_in(archive):
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("\0"):
            target.symlink_to(content[1:])
        else:
            target.write_text(content)
    return into


def files_in(archive: str) -> Iterator[tuple[str, str]]:
    """(path, content) of each file; the content of a link is NUL and its target."""
    directory = ""
    name, lines = "", []
    for number, line in enumerate(archive.splitlines(), 1):
        if line.startswith("\t"):
            lines.append(line[1:])
            continue
        if name:
            yield f"{directory}/{name}", "\n".join(lines) + "\n"
            name = ""
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            directory = line[1:-1]
            if directory.startswith("/") or ".." in directory.split("/"):
                raise ValueError(f"line {number}: {directory!r} leads outside the machine")
        elif " -> " in line:
            link, _, target = line.partition(" -> ")
            yield f"{directory}/{link}", "\0" + target
        elif " =" in line:
            name, _, first = line.partition(" =")
            lines = [first.removeprefix(" ")]
        else:
            raise ValueError(f"line {number}: {line[:60]!r} is neither [directory], name = content nor name -> target")
    if name:
        yield f"{directory}/{name}", "\n".join(lines) + "\n"


def pack(contents: Mapping[str, str], comment: str) -> str:
    """The archive of these files (path to content, a link as NUL and its target), sorted."""
    out = [f"# {line}".rstrip() for line in comment.splitlines()]
    directory = None
    for name in sorted(contents, key=_natural):
        content = contents[name]
        parent, _, base = name.rpartition("/")
        if parent != directory:
            directory = parent
            out.append(f"[{directory}]")
        if content.startswith("\0"):
            out.append(f"{base} -> {content[1:]}")
            continue
        first, *rest = content.rstrip("\n").split("\n")
        out.append(f"{base} = {first}".rstrip())
        out.extend(f"\t{line}" for line in rest)
    return "\n".join(out) + "\n"


def _natural(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Sorts cpu2 before cpu10, and a directory's files together."""
    parent, _, base = name.rpartition("/")
    parts = "".join(char if char.isdigit() else f"\n{char}\n" for char in parent).split("\n")
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts if part], base


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


def write(contents: Mapping[str, str], into: Path) -> Path:
    """Writes files (as `synthesize` gives them) below `into`, which is returned."""
    return unpack(pack(contents, ""), into)


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
