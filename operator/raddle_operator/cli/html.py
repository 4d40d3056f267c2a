"""One HTML page for people: nothing in it is from elsewhere, no script, light and dark, and fit for paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from raddle_operator.cli import page_style

_SHEET: Final = """\
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 FONT}
main{max-width:1160px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
p{margin:.3rem 0}
.soft,figcaption p,dt,th{color:var(--soft)}
.answer{margin:1.2rem 0;padding:14px 18px;background:var(--panel);border-left:5px solid var(--accent);border-radius:6px}
.answer .verdict{color:var(--accent);font-weight:700}
.answer .sentence{font-size:1.15rem;line-height:1.4;overflow-wrap:anywhere}
.whole{white-space:nowrap}
.tiles{display:flex;flex-wrap:wrap;gap:10px 34px;margin:.8rem 0 0}
.tiles dd{margin:0;font-size:1.25rem;font-weight:700}
.tiles dt,figcaption p,table{font-size:.9rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:26px 34px;margin-top:2rem}
figure{margin:0;break-inside:avoid}
figcaption{min-height:4.9em}
figcaption h2{margin:0}
figure svg{display:block;width:100%;height:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{padding:5px 12px 5px 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid);vertical-align:top}
th:first-child,td:first-child{text-align:left;white-space:normal;min-width:13em;overflow-wrap:anywhere}
tr.winner td{font-weight:700}
tr.winner td:first-child{color:var(--winner)}
tr.plan td:first-child{color:var(--plan)}
tr.skipped td{color:var(--soft)}
pre{margin:.3rem 0;padding:12px 14px;background:var(--panel);border:1px solid var(--grid);border-radius:6px;
white-space:pre-wrap;overflow-wrap:anywhere;
font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;user-select:all}
ul{margin:.3rem 0;padding-left:1.2em}
dl.key{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:.3rem 0}
dl.key dd{margin:0;overflow-wrap:anywhere}
@media print{body{font-size:11px}main{max-width:none;padding:0}.charts{grid-template-columns:1fr 1fr}
.wide{overflow:visible}h2{break-after:avoid}tr{break-inside:avoid}
th,td{padding-right:6px}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@media (max-width:640px){dl.key{grid-template-columns:1fr}dl.key dt{margin-top:6px}figcaption{min-height:0}}
"""


def page(title: str, parts: Iterable[str], *, accent: str, more: str = "") -> str:
    """The whole page with these parts of HTML; `accent` is a role of the palette, `more` what its style sheet adds."""
    light, dark = (_variables(palette) for palette in (page_style.LIGHT, page_style.DARK))
    sheet = (
        f":root{{color-scheme:light dark;{light}--accent:var(--{accent})}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"@media print{{:root{{color-scheme:light}}}}\n{_SHEET.replace('FONT', page_style.FONT)}{more}"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{sheet}\n</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Figures side by side, each with its name."""
    return f'<dl class="tiles">{"".join(f"<div>{described([pair])}</div>" for pair in pairs)}</dl>'


def described(pairs: Iterable[tuple[str, str]]) -> str:
    """What stands in a list of names and their descriptions."""
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)


def _variables(palette: Mapping[str, str]) -> str:
    return "".join(f"--{role}:{colour};" for role, colour in palette.items())
