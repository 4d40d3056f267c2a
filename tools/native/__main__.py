"""`python -m native build`: makes the native shim, and the runner in C, for each architecture with a compiler here."""

from __future__ import annotations

import argparse

from native import build
from unavailable import UnavailableError


def main() -> None:
    """Builds, and says how large they are."""
    parser = argparse.ArgumentParser(prog="native", description=build.__doc__)
    parser.add_argument("what", choices=("build",))
    parser.parse_args()
    for architecture in build.ARCHITECTURES:
        try:
            made = (build.library(architecture), build.runner(architecture))
        except UnavailableError as reason:
            print(f"==> {architecture} is left out: {reason}")
            continue
        for path in made:
            print(f"==> {path.relative_to(build.ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
