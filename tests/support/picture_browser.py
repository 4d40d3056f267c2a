"""Pictures in a real browser: what its layout engine finds wrong with them.

One headless Chromium opens all pictures in a page of their own script, which measures each text and rectangle and
writes down what overlaps or leaves its box.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# What is said of a picture, and each pair of rectangles with a pixel of slack: fonts are hinted.
SCRIPT = """
const slack = 1;
const inside = (a, b) => a.left >= b.left - slack && a.right <= b.right + slack
    && a.top >= b.top - slack && a.bottom <= b.bottom + slack;
const apart = (a, b) => a.right <= b.left + slack || b.right <= a.left + slack
    || a.bottom <= b.top + slack || b.bottom <= a.top + slack;
const own = (group, selector) => [...group.querySelectorAll(':scope > ' + selector)];
const said = {};
for (const section of document.querySelectorAll('section')) {
    const svg = section.querySelector('svg'), wrong = said[section.id] = [];
    const known = new Map();
    const box = element => {
        if (!known.has(element)) known.set(element, element.getBoundingClientRect());
        return known.get(element);
    };
    const named = element => `${element.closest('g')?.getAttribute('class') ?? 'page'} "${element.textContent.trim()}"`;
    const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim());
    if (!texts.length) wrong.push('holds no text');
    for (const text of texts) {
        if (!(box(text).width > 0)) wrong.push(`${named(text)} is not visible`);
        if (!inside(box(text), box(svg))) wrong.push(`${named(text)} leaves the picture`);
    }
    for (const [place, text] of texts.entries())
        for (const other of texts.slice(place + 1))
            if (!apart(box(text), box(other))) wrong.push(`${named(text)} overlaps ${named(other)}`);
    for (const group of svg.querySelectorAll('g.box')) {
        const [frame, ...cores] = own(group, 'rect');
        const parts = [...own(group, 'text'), ...cores, ...own(group, 'g').map(inner => inner.querySelector('rect'))];
        for (const part of parts)
            if (!inside(box(part), box(frame))) wrong.push(`${named(part)} leaves its box`);
        const boxes = own(group, 'g.box').map(inner => inner.querySelector('rect')).concat(own(group, 'text'));
        for (const [place, one] of boxes.entries())
            for (const other of boxes.slice(place + 1))
                if (!apart(box(one), box(other))) wrong.push(`${named(one)} overlaps ${named(other)}`);
    }
    const frames = own(svg, 'g.box').map(group => group.querySelector('rect'));
    for (const [place, frame] of frames.entries()) {
        if (!inside(box(frame), box(svg))) wrong.push('a box leaves the picture');
        for (const other of [...frames.slice(place + 1), ...own(svg, 'text')])
            if (!apart(box(frame), box(other))) wrong.push(`${named(frame)} overlaps ${named(other)}`);
    }
    const cells = [...svg.querySelectorAll('g.cpu')];
    for (const cell of cells) {
        const text = cell.querySelector('text');
        if (!inside(box(text), box(cell.querySelector('rect')))) wrong.push(`${named(text)} leaves its cell`);
    }
    for (const [place, cell] of cells.entries())
        for (const other of cells.slice(place + 1))
            if (!apart(box(cell.querySelector('rect')), box(other.querySelector('rect'))))
                wrong.push(`${named(cell)} overlaps ${named(other)}`);
}
const result = document.createElement('pre');
result.id = 'said';
result.textContent = JSON.stringify(said);
document.body.replaceChildren(result);
"""


def wrong_with(pictures, folder):
    """{name: [what is wrong]} of pictures given as {name: SVG text}. `folder` is for the page."""
    sections = "".join(f'<section id="{name}">{svg}</section>' for name, svg in pictures.items())
    page = folder / "pictures.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{sections}<script>{SCRIPT}</script></body>")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page's script did not end:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    plain = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(plain)
