"""`python -m native build`: makes the native shim for each architecture that there is a compiler for."""

from __future__ import annotations

import argparse

from native import build
from unavailable import UnavailableError


def main() -> None:
    """Builds, and says how large the libraries are."""
    parser = argparse.ArgumentParser(prog="native", description=build.__doc__)
    parser.add_argument("what", choices=("build",))
    parser.parse_args()
    for architecture in build.ARCHITECTURES:
        try:
            path = build.library(architecture)
        except UnavailableError as reason:
            print(f"==> {architecture} is left out: {reason}")
        else:
            print(f"==> {path.relative_to(build.ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
