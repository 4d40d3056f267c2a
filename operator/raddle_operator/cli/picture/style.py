"""The frame of an SVG picture: its style sheet and patterns, and how wide text is at most."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final
from xml.sax.saxutils import escape

# Pixels a character takes at most on average, in the widest of the usual fonts (DejaVu Sans).
SANS_EM: Final = 7.9
BOLD_EM: Final = 8.9
TITLE_EM: Final = 12.2
_MONO_EM: Final = 7.3


def sans(text: str) -> int:
    """Return how wide a line of text is at most."""
    return ceil(len(text) * SANS_EM)


def bold(text: str) -> int:
    """Return how wide a box's title is at most."""
    return ceil(len(text) * BOLD_EM)


def mono(count: int) -> int:
    """Return how wide so many characters of a CPU's number are at most."""
    return ceil(count * _MONO_EM)


# Colours are told apart by colour-blind readers too; the patterns and signs say the same.
_SHEET: Final = """\
svg{--bg:#fff;--ink:#0f172a;--soft:#526077;--core:#94a3b8;--cell:#e8edf3;--hatch:#64748b;
--socket:#475569;--socket-fill:#f8fafc;--numa:#0369a1;--numa-fill:#eff8ff;--die:#7c3aed;--die-fill:#faf5ff;
--l3:#15803d;--l3-fill:#f0fdf4;--type:#b45309;--type-fill:#fffbeb;--slow:#d97706;
--worker:#0f766e;--worker-ink:#fff;--pool:#5eead4;--caller:#fcd34d;--idle:#dbeafe;--reserved:#fecaca}
@media (prefers-color-scheme:dark){svg{--bg:#0b1220;--ink:#e8edf5;--soft:#a3b1c6;--core:#64748b;--cell:#26334a;
--hatch:#94a3b8;--socket:#94a3b8;--socket-fill:#111a2c;--numa:#38bdf8;--numa-fill:#0d2237;--die:#a78bfa;
--die-fill:#1c1836;--l3:#4ade80;--l3-fill:#0e2a22;--type:#fbbf24;--type-fill:#2a2212;--slow:#f59e0b;
--worker:#2dd4bf;--worker-ink:#042f2e;--pool:#115e59;--caller:#92600a;--idle:#1e3a6e;--reserved:#7f1d1d}}
.page{fill:var(--bg)}
text{fill:var(--ink);font:13px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,"DejaVu Sans",sans-serif}
.title{font-size:18px;font-weight:700}
.name{font-weight:700}
.note{fill:var(--soft)}
.number{text-anchor:end}
.own{font-weight:700}
.box>rect{fill:var(--socket-fill);stroke:var(--socket);stroke-width:1.3}
.box.numa>rect,.box.memory>rect{fill:var(--numa-fill);stroke:var(--numa)}
.box.die>rect{fill:var(--die-fill);stroke:var(--die)}
.box.l3>rect{fill:var(--l3-fill);stroke:var(--l3)}
.box.type>rect{fill:var(--type-fill);stroke:var(--type);stroke-dasharray:5 3}
.box.memory>rect,.box.offline>rect,.box.pool>rect{stroke-dasharray:6 4}
.box.pool>rect{fill:var(--l3-fill);stroke:var(--worker)}
.box>rect.core{fill:var(--bg);stroke:var(--core);stroke-width:1;stroke-dasharray:none}
.box>rect.core.slow{stroke:var(--slow);stroke-dasharray:2 2}
.cpu rect{fill:var(--cell)}
.cpu text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;text-anchor:middle}
.cpu .sign{font-weight:700}
.cpu.worker rect{fill:var(--worker)}
.cpu.worker text{fill:var(--worker-ink)}
.cpu.pool rect{fill:var(--pool)}
.cpu.caller rect{fill:var(--caller)}
.cpu.idle rect{fill:var(--idle)}
.cpu.reserved rect{fill:url(#raddle-reserved)}
.cpu.outside rect{fill:none;stroke:var(--core);stroke-dasharray:2 2}
.cpu.outside text{fill:var(--soft)}
.cpu.offline rect{fill:url(#raddle-offline);stroke:var(--core)}
.cpu.isolated rect{stroke:var(--die);stroke-width:2}
.cpu.isolated.free rect,.key.isolated rect{fill:url(#raddle-isolated)}
.cpu text{paint-order:stroke;stroke-linejoin:round}
.cpu.offline text,.cpu.isolated.free text,.key.isolated text{stroke:var(--bg);stroke-width:3px}
.cpu.reserved text{stroke:var(--reserved);stroke-width:3px}
"""
_PATTERNS: Final = """\
<pattern id="raddle-offline" width="6" height="6" patternUnits="userSpaceOnUse">\
<path d="M0 0L6 6M6 0L0 6" stroke="var(--hatch)" stroke-width=".8"/></pattern>
<pattern id="raddle-reserved" width="6" height="6" patternUnits="userSpaceOnUse">\
<rect width="6" height="6" fill="var(--reserved)"/>\
<path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="var(--hatch)" stroke-width=".7"/></pattern>
<pattern id="raddle-isolated" width="5" height="5" patternUnits="userSpaceOnUse">\
<rect width="5" height="5" fill="var(--cell)"/><circle cx="2.5" cy="2.5" r=".9" fill="var(--die)"/></pattern>
"""


def document(*, width: int, height: int, title: str, description: str, elements: Sequence[str]) -> str:
    """Return a whole SVG file that holds the elements."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img" aria-labelledby="raddle-title raddle-desc">\n'
        f'<title id="raddle-title">{escape(title)}</title>\n<desc id="raddle-desc">{escape(description)}</desc>\n'
        f"<style>\n{_SHEET}</style>\n<defs>\n{_PATTERNS}</defs>\n"
        f'<rect class="page" width="{width}" height="{height}" rx="10"/>\n' + "\n".join(elements) + "\n</svg>\n"
    )
