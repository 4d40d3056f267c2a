"""`python -m raddle_operator` is the `raddle` command."""

from __future__ import annotations

from raddle_operator.cli import main

if __name__ == "__main__":
    main(prog_name="raddle")
