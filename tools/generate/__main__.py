"""Writes every file that is derived; tests/contract/test_generated.py checks that each is current."""

from __future__ import annotations

import argparse

from generate.files import FILES, PICTURES
from report import ROOT


def main() -> None:
    """Write them, and remove the pictures of machines that are no more."""
    argparse.ArgumentParser(prog="python -m generate", description=__doc__).parse_args()
    for path, render in FILES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render())
        print(f"wrote {path.relative_to(ROOT)}")
    for path in set(PICTURES.iterdir()) - set(FILES):
        path.unlink()


if __name__ == "__main__":
    main()
