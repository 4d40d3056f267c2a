"""Fuzzes the readers of untrusted text in every language, placement and the webhook: `python -m fuzz` (`make fuzz`)."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "runtime" / "native"
UNAVAILABLE = 77


def python(cases: int) -> int:
    """The exit status; UNAVAILABLE where the fuzzer can't run here."""
    return subprocess.run([sys.executable, HERE / "plan.py", str(cases)], check=False).returncode


def native(cases: int) -> int:
    """The same for the native shim; its fuzzer is built with the sanitizers."""
    compiler, program = shutil.which("cc"), HERE / "plan_fuzz.c"
    if compiler is None or not program.exists():
        print("native: not fuzzed, " + ("there is no fuzzer" if compiler else "there is no C compiler"))
        return UNAVAILABLE
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "plan_fuzz"
        flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{NATIVE}"]
        subprocess.run([compiler, *flags, "-o", built, program, "-lm", "-ldl", "-lpthread"], check=True)
        return subprocess.run([built, str(cases)], check=False).returncode


def machine(cases: int) -> int:
    """The same for placement on random machines, in a process of its own."""
    return subprocess.run([sys.executable, "-m", "fuzz.machine", "--cases", str(cases)], check=False).returncode


def reviews(cases: int) -> int:
    """The same for the webhook's answers to random pods."""
    return subprocess.run([sys.executable, "-m", "fuzz.reviews", "--cases", str(cases)], check=False).returncode


FUZZERS: dict[str, Callable[[int], int]] = {
    "python": python,
    "native": native,
    "machine": machine,
    "reviews": reviews,
}
DEFAULT_CASES = {"machine": 1_000_000, "reviews": 1_000_000}
OTHERWISE = 400_000


def main() -> int:
    """Runs the fuzzers; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", type=int, help="inputs for each (default 400000 a language, 1000000 machine cases and reviews)"
    )
    parser.add_argument("--only", choices=sorted(FUZZERS), action="append", help="one of them; may be repeated")
    arguments = parser.parse_args()
    wanted = {name: arguments.cases or DEFAULT_CASES.get(name, OTHERWISE) for name in arguments.only or FUZZERS}
    statuses = {name: FUZZERS[name](cases) for name, cases in wanted.items()}
    done = sum(wanted[name] for name, status in statuses.items() if status == 0)
    print(f"{done} inputs in all")
    return 1 if any(status not in (0, UNAVAILABLE) for status in statuses.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
