"""The native shim's pure parts, compiled into harnesses (tests/contract/*.c) under the address and undefined-behaviour
sanitizers; any finding of theirs ends the harness."""

from pathlib import Path

from native.build import SOURCES
from support.runtimes.native_programs import Kind, need

HERE = Path(__file__).parents[1] / "contract"
PARTS = ("sys", "text", "cpuset", "plan", "resolve", "claims", "cgroup", "machine", "placement")
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiled(folder, source, parts):
    """The harness with these parts of the shim and the sanitizers. `source`: a path, or a name in tests/contract."""
    built = folder / Path(source).stem
    sources = [HERE / source, *(SOURCES / f"{part}.c" for part in parts)]
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    need("gcc")
    Kind.run_checked("gcc", *SANITIZED, *warnings, "-pthread", "-DRD_HOSTED", f"-I{SOURCES}", "-o", built, *sources)
    return built


def quota(limits):
    """As the harness prints it."""
    return "-" if limits.quota_cpus is None else f"{limits.quota_cpus:.17g}"
