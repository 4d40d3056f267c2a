"""Pictures as SVG: self-contained, readable by machines and people, and right when a browser lays them out."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib import image
from support.machines import SIZES, of_size
from support.picture_browser import BROWSER, wrong_with

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, Group, Kubelet, Machine, NUMANode
from raddle.machine import sysfs
from raddle.planning.policy import Policy
from raddle_operator.cli.picture import layout, overlay, style, svg, text

RSVG = shutil.which("rsvg-convert")
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
NS = {"s": "http://www.w3.org/2000/svg"}


def drawn(machine, marks=None):
    return svg.draw(layout.picture(machine, marks))


def parsed(machine, marks=None):
    return ET.fromstring(drawn(machine, marks))


def numbers(root):
    """The CPUs' numbers, and the class of each."""
    return {int(group.get("data-cpu")): group.get("class") for group in root.iterfind(".//s:g[@data-cpu]", NS)}


def test_it_has_a_title_a_description_and_a_role():
    root = parsed(of_size(32))
    title, description = root.find("s:title", NS), root.find("s:desc", NS)
    assert root.get("role") == "img"
    assert root.get("aria-labelledby").split() == [title.get("id"), description.get("id")]
    assert title.text == "Topology of Synthetic"
    assert "2 sockets, 2 NUMA nodes, 2 L3 domains, 16 cores, 32 CPUs" in description.text


def test_it_refers_to_nothing_outside_itself():
    text = drawn(of_size(32))
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert not re.search(r"href|@import|<script|<image|<foreignObject", text)
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]


def test_every_colour_has_one_for_light_and_one_for_dark():
    sheet = style.document(width=1, height=1, title="", description="", elements=[])
    light, dark = sheet.split("@media (prefers-color-scheme:dark)")
    coloured = re.compile(r"([^{}\n]+)\{([^}]*#[^}]*)\}")
    assert {selector for selector, _ in coloured.findall(light)} == {selector for selector, _ in coloured.findall(dark)}


def pixels(text, folder):
    """The picture as librsvg draws it on black: rows of (red, green, blue), 0 to 1."""
    (folder / "picture.svg").write_text(text)
    command = [RSVG, "--background-color=black", folder / "picture.svg", "-o", folder / "picture.png"]
    subprocess.run(command, check=True, timeout=60)
    return image.imread(folder / "picture.png")[..., :3]


@pytest.mark.skipif(RSVG is None, reason="no rsvg-convert is installed")
@pytest.mark.parametrize("name", ["architecture.svg", "load.svg", "machines/example.svg", "watch/node.svg"])
def test_a_renderer_without_variables_draws_a_committed_picture_in_light_colours(name, tmp_path):
    light = pixels((IMAGES / name).read_text(), tmp_path).min(axis=2) > 0.85
    assert 0.5 < light.mean() < 0.99


@pytest.mark.skipif(RSVG is None, reason="no rsvg-convert is installed")
def test_a_renderer_without_variables_draws_each_state_in_its_own_colour(tmp_path):
    text = marked(32, "2-5,18-21")
    drawing = pixels(text, tmp_path)
    colours = {}
    for group in ET.fromstring(text).iterfind(".//s:g[@data-cpu]", NS):
        cell = group.find("s:rect", NS)
        # Within the left edge, beside the number, and as high and wide as a pattern.
        left, top = int(cell.get("x")) + 2, int(cell.get("y")) + 4
        mean = drawing[top : top + 6, left : left + 6].mean(axis=(0, 1)).round(1)
        # An isolated CPU differs by its border.
        colours.setdefault(group.get("class").removesuffix(" isolated"), set()).add(tuple(mean.tolist()))
    assert colours.keys() >= {"cpu worker", "cpu caller", "cpu outside", "cpu reserved", "cpu offline"}
    assert len(set(map(frozenset, colours.values()))) == len(colours)


def test_what_a_model_is_called_cannot_become_markup():
    root = parsed(of_size(2)._replace(model='<script>&"'))
    assert root.find("s:title", NS).text == 'Topology of <script>&"'
    assert not root.findall(".//s:script", NS)


def test_each_state_has_a_class_and_is_said_in_words():
    machine = of_size(32)._replace(
        offline=cpuset.parse_list("32"),
        isolated=cpuset.parse_list("15"),
        kubelet=Kubelet("static", reserved_cpus=cpuset.parse_list("14")),
    )
    plan = overlay.assumed(8)._replace(policy=Policy(affinity="PerCore", intra_op=3))
    root = parsed(machine, overlay.planned(machine, "serve", plan, cpuset.parse_list("0-3,16-19")))
    classes = numbers(root)
    groups = root.iterfind(".//s:g[@data-cpu]", NS)
    titles = {int(group.get("data-cpu")): group.find("s:title", NS).text for group in groups}
    said = {cpu: (classes[cpu], titles[cpu]) for cpu in (0, 1, 3, 13, 14, 15, 32)}
    assert said == {
        0: ("cpu caller", "CPU 0, left to the caller's thread"),
        1: ("cpu worker", "CPU 1, worker 1"),
        3: ("cpu idle", "CPU 3, the container's own, left idle"),
        13: ("cpu outside", "CPU 13, outside the CPU set"),
        14: ("cpu reserved", "CPU 14, reserved for the system"),
        15: ("cpu outside isolated", "CPU 15, outside the CPU set, isolated"),
        32: ("cpu offline", "CPU 32, offline"),
    }


def test_slower_cores_are_drawn_otherwise():
    root = parsed(sysfs.read_machine(str(machines.path("hybrid-6p8e-20t"))))
    assert len(root.findall(".//s:rect[@class='core']", NS)) == 6
    assert len(root.findall(".//s:rect[@class='core slow']", NS)) == 8


@pytest.mark.parametrize("cpus", SIZES)
def test_it_is_never_wider_than_a_page(cpus):
    assert int(parsed(of_size(cpus)).get("width")) <= svg.WIDTH


browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def marked(cpus, exclusive):
    """A machine with all that can be marked at once, and a pool on some of its CPUs."""
    machine = of_size(cpus)._replace(
        offline=cpuset.parse_list(f"{cpus}-{cpus + 3}"),
        isolated=cpuset.parse_list("1"),
        gpus=(GPU("0000:3b:00.0", 0), GPU("0000:af:00.0", None)),
        kubelet=Kubelet("static", reserved_cpus=cpuset.parse_list("0")),
    )
    mask = cpuset.parse_list(exclusive)
    plan = overlay.assumed(cpuset.count(mask))._replace(policy=Policy(affinity="PerCore"))
    return drawn(machine, overlay.planned(machine, "a-container-with-a-long-name" * 3, plan, mask))


@pytest.mark.slow
@browser
def test_a_browser_finds_nothing_that_overlaps_or_leaves_its_box(tmp_path):
    pictures = {name: drawn(sysfs.read_machine(str(machines.path(name)))) for name in machines.names()}
    pictures |= {f"of_size {cpus}": drawn(of_size(cpus)) for cpus in (2, 16, 32, 256)}
    pictures |= {"marked 32": marked(32, "2-5,18-21"), "marked 256": marked(256, "2-65,130-193")}
    pictures["a long name"] = drawn(of_size(2)._replace(model="Processor WWWW " * 12))
    assert wrong_with(pictures, tmp_path) == {name: [] for name in pictures}


@pytest.mark.slow
@browser
def test_a_browser_would_find_it(tmp_path):
    right = drawn(of_size(16))
    moved = re.sub(r'(<g class="cpu free" data-cpu="3">.*?<rect x=")\d+', r"\g<1>900", right, flags=re.DOTALL)
    widened = right.replace(">socket 0", f">socket 0{'M' * 60}", 1)
    empty = re.sub(r"(?s)<g class.*</g>|<text.*?</text>", "", right)
    found = wrong_with({"moved": moved, "widened": widened, "empty": empty}, tmp_path)
    assert 'cpu free "3" leaves its cell' in found["moved"]
    assert any("leaves its box" in one for one in found["widened"])
    assert found["empty"] == ["holds no text"]


@pytest.mark.parametrize("nodes", [(), (0x03, 0x0C, 0x30, 0xC0)])
@pytest.mark.parametrize("numbers", [(*range(4), *range(65536, 65540)), range(9996, 10004)])
def test_boxes_of_one_kind_have_one_width_whichever_boxes_they_are_in(nodes, numbers):
    domains = tuple(Group(number, 1 << cpu) for cpu, number in enumerate(numbers))
    machine = Machine(
        online=0xFF,
        cores=tuple(domain.cpus for domain in domains),
        sockets=(Group(0, 0x0F), Group(1, 0xF0)),
        numa_nodes=tuple(NUMANode(number, cpus) for number, cpus in enumerate(nodes)),
        l3_domains=domains,
    )
    boxes = [group.find("s:rect", NS) for group in parsed(machine).findall(".//s:g[@class='box l3']", NS)]
    assert len(boxes) == 8
    assert len({box.get("width") for box in boxes}) == 1
    drawing = text.plain(text.draw(layout.picture(machine), 180))
    tops = re.findall(r"┌ L3 \d+ ─*┐", drawing)
    assert len(tops) == 8
    assert len({len(top) for top in tops}) == 1
