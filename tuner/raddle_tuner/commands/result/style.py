"""SVGs of matplotlib in the palette of Raddle's pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Final

from raddle_operator.cli.page_style import DARK, FONT, LIGHT

_ROLES: Final = {colour: role for role, colour in LIGHT.items()}
_SVG: Final = "http://www.w3.org/2000/svg"
_REFERENCE: Final = re.compile(r"#([\w-]+)")


def _rules(palette: Mapping[str, str]) -> str:
    return "".join(
        f".fill-{role}{{fill:{colour}}}.stroke-{role}{{stroke:{colour}}}" for role, colour in palette.items()
    )


def sheet() -> str:
    """The style sheet for SVGs of `restyled`; on paper they are light.

    Renderers of pictures know no variables of CSS, so that each colour is written as it is.
    """
    dark = f"@media screen and (prefers-color-scheme:dark){{{_rules(DARK)}}}"
    return f"svg text{{font-family:{FONT}}}\n{_rules(LIGHT)}\n{dark}"


def restyled(svg: str, name: str, title: str) -> ET.Element:
    """The SVG with classes for the palette's colours, ids that begin with `name`, and nothing of elsewhere.

    `svg` is matplotlib's. For an HTML page: without the namespace, which a file of its own needs.
    """
    root = ET.fromstring(svg)  # noqa: S314 (matplotlib made it)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if key.startswith("{")]:
            element.set(key.rpartition("}")[2], element.attrib.pop(key))
    for unwanted in root.findall("metadata"):
        root.remove(unwanted)
    for styles in root.iter("defs"):
        for one in styles.findall("style"):
            styles.remove(one)
    referred = {
        item for element in root.iter() for value in element.attrib.values() for item in _REFERENCE.findall(value)
    }
    for element in root.iter():
        _restyle(element, name, referred)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return root


def _restyle(element: ET.Element, name: str, referred: set[str]) -> None:
    if element.get("id") not in referred:
        element.attrib.pop("id", None)
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == "href" or value.startswith("url(#"):
            element.set(key, value.replace("#", f"#{name}-"))
    parts = [part.partition(":") for part in element.attrib.pop("style", "").split(";")]
    styles = {what.strip(): value.strip() for what, _, value in parts if value}
    classes = [f"{what}-{_ROLES[value]}" for what, value in styles.items() if value in _ROLES]
    if element.tag == "text":
        styles = _text_styles(styles)
        classes = [one for one in classes if one.startswith("fill-")] or ["fill-ink"]
    rest = [f"{what}:{value}" for what, value in styles.items() if value not in _ROLES]
    if classes:
        element.set("class", " ".join(classes))
    if rest:
        element.set("style", ";".join(rest))


def _text_styles(styles: Mapping[str, str]) -> dict[str, str]:
    """Without the family, which is the page's: matplotlib writes `font: 700 10px 'DejaVu Sans', ...`."""
    font = styles.get("font", "")
    size = re.search(r"[\d.]+px", font)
    bold = {"font-weight": "700"} if font.startswith(("bold", "700")) else {}
    rest = {what: value for what, value in styles.items() if what not in {"font", "font-family"}}
    return rest | bold | ({"font-size": size[0]} if size else {})


def inline(root: ET.Element) -> str:
    """The SVG as a part of a page."""
    return ET.tostring(root, encoding="unicode")


def file(root: ET.Element) -> str:
    """The SVG as a file of its own, on the page's colour."""
    x, y, width, height = root.attrib["viewBox"].split()
    whole = ET.Element("rect", {"class": "fill-page", "x": x, "y": y, "width": width, "height": height})
    looks = ET.Element("style")
    looks.text = sheet()
    attributes = {"xmlns": _SVG, "width": width, "height": height, **root.attrib}
    made = ET.Element("svg", attributes)
    made.extend([looks, whole, *root])
    return ET.tostring(made, encoding="unicode") + "\n"
