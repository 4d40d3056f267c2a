"""usearch: its calls take the plan's threads where the code passes none, which means all CPUs of the machine."""

from __future__ import annotations

from typing import Any

from raddle.adapters.library import Library

# Its extension is the file compiled.<platform>.so.
# Anybody's module may be named so: it is no row of raddle.libraries.
_library = Library("usearch", (b"compiled.",))


def install(module: Any, plan_text: str) -> None:
    """Also the functions that take no index: exact search and clustering."""
    _library.read(module, plan_text)
    for holder in (module, getattr(module, "Index", None), getattr(module, "Indexes", None)):
        for name in ("add", "search", "remove", "cluster", "kmeans", "merge_paths"):
            _library.argument(holder, name, "threads")
