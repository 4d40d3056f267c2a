"""The frame of an SVG picture: its style sheet and patterns, and how wide text is at most."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from string import Template
from typing import Final
from xml.sax.saxutils import escape

# Pixels a character takes at most on average, in the widest of the usual fonts (DejaVu Sans).
SANS_EM: Final = 7.9
BOLD_EM: Final = 8.9
TITLE_EM: Final = 12.2
_MONO_EM: Final = 7.3


def sans(text: str) -> int:
    """How wide a line of text is at most."""
    return ceil(len(text) * SANS_EM)


def bold(text: str) -> int:
    """How wide a box's title is at most."""
    return ceil(len(text) * BOLD_EM)


def mono(count: int) -> int:
    """How wide so many characters of a CPU's number are at most."""
    return ceil(count * _MONO_EM)


# Renderers of pictures (librsvg, CairoSVG, resvg, Inkscape) know no variables of CSS and skip what is for a medium, so
# that each colour is written as it is: all for light first, then all again for dark.
# Colours are told apart by colour-blind readers too; the patterns and signs say the same.
_LIGHT: Final = {
    "page": "#fff", "ink": "#0f172a", "soft": "#526077", "core": "#94a3b8", "cell": "#e8edf3", "hatch": "#64748b",
    "socket": "#475569", "socket_fill": "#f8fafc", "numa": "#0369a1", "numa_fill": "#eff8ff",
    "die": "#7c3aed", "die_fill": "#faf5ff", "l3": "#15803d", "l3_fill": "#f0fdf4",
    "type": "#b45309", "type_fill": "#fffbeb", "slow": "#d97706", "worker": "#0f766e", "worker_ink": "#fff",
    "pool": "#5eead4", "caller": "#fcd34d", "idle": "#dbeafe", "reserved": "#fecaca",
    "quiet": "#fef3c7", "used": "#fdba74", "busy": "#ea580c", "busy_ink": "#0f172a", "shared": "#9f1239",
}  # fmt: skip
_DARK: Final = {
    "page": "#0b1220", "ink": "#e8edf5", "soft": "#a3b1c6", "core": "#64748b", "cell": "#26334a", "hatch": "#94a3b8",
    "socket": "#94a3b8", "socket_fill": "#111a2c", "numa": "#38bdf8", "numa_fill": "#0d2237",
    "die": "#a78bfa", "die_fill": "#1c1836", "l3": "#4ade80", "l3_fill": "#0e2a22",
    "type": "#fbbf24", "type_fill": "#2a2212", "slow": "#f59e0b", "worker": "#2dd4bf", "worker_ink": "#042f2e",
    "pool": "#115e59", "caller": "#92600a", "idle": "#1e3a6e", "reserved": "#7f1d1d",
    "quiet": "#4a3a10", "used": "#8a4510", "busy": "#f97316", "busy_ink": "#0b1220", "shared": "#fda4af",
}  # fmt: skip
_COLOURS: Final = Template("""\
.page{fill:$page}
text{fill:$ink}
.note{fill:$soft}
.box>rect{fill:$socket_fill;stroke:$socket}
.box.numa>rect,.box.memory>rect{fill:$numa_fill;stroke:$numa}
.box.die>rect{fill:$die_fill;stroke:$die}
.box.l3>rect,.box.l2>rect{fill:$l3_fill;stroke:$l3}
.box.type>rect{fill:$type_fill;stroke:$type}
.box.pool>rect{fill:$l3_fill;stroke:$worker}
.box>rect.core{fill:$page;stroke:$core}
.box>rect.core.slow{stroke:$slow}
.cpu rect,.tile rect,.cell{fill:$cell}
.cpu.worker rect{fill:$worker}
.cpu.worker text{fill:$worker_ink}
.cpu.pool rect{fill:$pool}
.cpu.caller rect{fill:$caller}
.idle>rect{fill:$idle}
.quiet>rect{fill:$quiet}
.used>rect{fill:$used}
.busy>rect{fill:$busy}
.busy>text{fill:$busy_ink}
.shared>rect{stroke:$shared}
.cpu.reserved rect{fill:url(#raddle-reserved)}
.cpu.outside rect{fill:none;stroke:$core}
.cpu.outside text{fill:$soft}
.cpu.offline rect,.tile.offline rect{fill:url(#raddle-offline);stroke:$core}
.cpu.isolated rect{stroke:$die}
.cpu.isolated.free rect,.key.isolated rect{fill:url(#raddle-isolated)}
.cpu.offline text,.cpu.isolated.free text,.key.isolated text{stroke:$page}
.cpu.reserved text{stroke:$reserved}
.hatch{stroke:$hatch}
.reserved-cell{fill:$reserved}
.dot{fill:$die}
""")
_SHEET: Final = """\
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,"DejaVu Sans",sans-serif}
.title{font-size:18px;font-weight:700}
.name{font-weight:700}
.number{text-anchor:end}
.own{font-weight:700}
.box>rect{stroke-width:1.3}
.box.type>rect{stroke-dasharray:5 3}
.box.memory>rect,.box.offline>rect,.box.pool>rect{stroke-dasharray:6 4}
.box>rect.core{stroke-width:1;stroke-dasharray:none}
.box>rect.core.slow{stroke-dasharray:2 2}
.cpu text,.tile text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.cpu text,.tile text{text-anchor:middle}
.cpu .sign{font-weight:700}
.cpu.outside rect{stroke-dasharray:2 2}
.cpu.isolated rect,.shared>rect{stroke-width:2}
.cpu text{paint-order:stroke;stroke-linejoin:round;stroke-width:3px}
"""
_PATTERNS: Final = """\
<pattern id="raddle-offline" width="6" height="6" patternUnits="userSpaceOnUse">\
<path class="hatch" d="M0 0L6 6M6 0L0 6" stroke-width=".8"/></pattern>
<pattern id="raddle-reserved" width="6" height="6" patternUnits="userSpaceOnUse">\
<rect class="reserved-cell" width="6" height="6"/>\
<path class="hatch" d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke-width=".7"/></pattern>
<pattern id="raddle-isolated" width="5" height="5" patternUnits="userSpaceOnUse">\
<rect class="cell" width="5" height="5"/><circle class="dot" cx="2.5" cy="2.5" r=".9"/></pattern>
"""


def _sheet() -> str:
    """The style sheet in three lines: it is the same in every picture."""
    shapes, light, dark = (
        text.replace("\n", "") for text in (_SHEET, _COLOURS.substitute(_LIGHT), _COLOURS.substitute(_DARK))
    )
    return f"{shapes}\n{light}\n@media (prefers-color-scheme:dark){{{dark}}}\n"


def legend(entries: Sequence[tuple[str, str, str]], left: int, y: int, width: int) -> tuple[list[str], int]:
    """The elements of a legend, (sign, meaning, class) each, in rows of this width; and where it ends."""
    x, result = left, []
    for sign, meaning, kind in entries:
        wide = 34 + sans(meaning) + 16
        if x > left and x + wide > left + width:
            x, y = left, y + 26
        inside = f'<text x="{x + 13}" y="{y + 14}"><tspan class="sign">{escape(sign)}</tspan></text>' if sign else ""
        result.append(
            f'<g class="{"cpu" if sign else "tile"} key {kind}">'
            f'<rect x="{x}" y="{y}" width="26" height="19" rx="3"/>{inside}</g>'
            f'<text x="{x + 33}" y="{y + 14}">{escape(meaning)}</text>'
        )
        x += wide
    return result, y + 30 if entries else y


def document(*, width: int, height: int, title: str, description: str, elements: Sequence[str]) -> str:
    """A whole SVG file that holds the elements."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img" aria-labelledby="raddle-title raddle-desc">\n'
        f'<title id="raddle-title">{escape(title)}</title>\n<desc id="raddle-desc">{escape(description)}</desc>\n'
        f"<style>\n{_sheet()}</style>\n<defs>\n{_PATTERNS}</defs>\n"
        f'<rect class="page" width="{width}" height="{height}" rx="10"/>\n' + "\n".join(elements) + "\n</svg>\n"
    )
