"""Makes native/libraries.h of the rows of raddle.libraries."""

from __future__ import annotations

from collections.abc import Iterator

from generate.keys import macro
from raddle.libraries import LIBRARIES


def c() -> str:
    """The text of native/libraries.h."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield "/* Which runtime a file is of. Made by `make generate` of raddle.libraries: edit that. */"
    yield "#ifndef RADDLE_LIBRARIES_H"
    yield "#define RADDLE_LIBRARIES_H"
    yield ""
    yield "/* X(runtime, its name), by name. */"
    runtimes = sorted({one.runtime for one in LIBRARIES})
    yield from macro("RD_RUNTIMES(X)", [f'X({_enumerator(name)}, "{name}")' for name in runtimes])
    yield ""
    yield "#define RD_ENUMERATOR_OF_RUNTIME(runtime, name) runtime,"
    yield "enum rd_runtime { RD_RUNTIMES(RD_ENUMERATOR_OF_RUNTIME) RD_RUNTIME_COUNT };"
    yield ""
    yield "/* X(the stem of the file's name, runtime, whether a program that is linked to it gets variables) */"
    rows = [f'X("{one.stem}", {_enumerator(one.runtime)}, {str(one.has_variables).lower()})' for one in LIBRARIES]
    yield from macro("RD_LIBRARIES(X)", rows)
    yield ""
    yield "#endif"


def _enumerator(runtime: str) -> str:
    return f"RD_RUNTIME_{runtime.upper()}"
