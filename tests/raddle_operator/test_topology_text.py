"""Pictures in a terminal: they fit any width, get shorter where a machine is large, and need no colours."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import SIZES, described_machines, of_size

from raddle.cpus import cpuset
from raddle_operator.cli.picture import detail, layout, model, text
from raddle_operator.cli.picture.frames import UNICODE, Drawing
from raddle_operator.cli.picture.model import Box, Cell


def picture(cpus):
    return layout.picture(of_size(cpus))


def width_of(line):
    return sum(len(part) for part, _ in line)


def cpus_drawn(lines):
    """The numbers of CPUs in the order in which they are drawn, wherever they have a cell."""
    return [int(part) for line in lines for part, style in line if style.startswith("cpu.") and part]


@pytest.mark.parametrize("width", [60, 80, 120, 250])
@pytest.mark.parametrize("cpus", SIZES)
def test_a_picture_fits_its_width_and_two_screens(cpus, width):
    lines = text.draw(picture(cpus), width)
    assert max(map(width_of, lines)) <= width
    assert len(lines) <= 80


@pytest.mark.parametrize(("cpus", "width"), [(2, 60), (16, 60), (32, 60), (256, 80)])
def test_up_to_256_cpus_each_has_its_number_in_the_picture(cpus, width):
    assert sorted(cpus_drawn(text.draw(picture(cpus), width))) == list(range(cpus))


def test_1024_cpus_are_lists_of_cpus_in_boxes_that_stand_for_several():
    shown = text.plain(text.draw(picture(1024), 80))
    assert "16 × L3 16-31" in shown
    assert "128 cores, 8 in each" in shown
    assert "CPUs 128-255, 640-767" in shown


def test_the_same_picture_is_the_golden_one(golden):
    golden("picture-256.txt", text.plain(text.draw(picture(256), 80)))
    golden("picture-1024.txt", text.plain(text.draw(picture(1024), 80)))


@given(described_machines(), st.integers(40, 250))
def test_any_machine_fits_any_width(machine, width):
    drawn = layout.picture(machine)
    assert max(map(width_of, text.draw(drawn, width))) <= width


@given(described_machines(), st.booleans())
def test_each_cpu_has_one_cell_in_the_two_detailed_grades(machine, framed):
    lines = Drawing(layout.picture(machine).boxes, 120, UNICODE, framed=framed).lines()
    assert sorted(cpus_drawn(lines)) == cpuset.ids(machine.online | machine.offline)


@given(described_machines(), st.integers(0, 5))
def test_each_cpu_is_in_one_list_in_the_two_short_grades(machine, depth):
    def listed(boxes):
        for box in boxes:
            yield from (note.removeprefix("CPUs ").replace(" ", "") for note in box.notes if note.startswith("CPUs "))
            yield from listed(box.boxes)

    shortened = [detail.summarised(box) for box in detail.merged(layout.picture(machine).boxes, depth)]
    cpus = [cpu for one in listed(shortened) for cpu in cpuset.ids(cpuset.parse_list(one))]
    assert sorted(cpus) == cpuset.ids(machine.online | machine.offline)


@given(described_machines())
def test_frames_are_closed_rectangles(machine):
    block = Drawing(layout.picture(machine).boxes[:1], 120, UNICODE, framed=True).lines()
    assert len({width_of(line) for line in block}) == 1


def test_boxes_that_differ_are_not_merged():
    small, large = (
        Box(kind="l3", names=(f"L3 {number}",), cores=tuple((Cell(cpu=cpu),) for cpu in cpus))
        for number, cpus in ((0, (0,)), (1, (1, 2)))
    )
    assert detail.merged([small, large], 0) == (small, large)


def test_merged_names_list_their_ids_and_span_other_numbers():
    boxes = [
        Box(kind="numa", names=(f"NUMA node {number}", memory), cores=((Cell(cpu=number),),))
        for number, memory in ((0, "63.9 GiB"), (1, "64 GiB"), (4, "64 GiB"))
    ]
    (merged,) = detail.merged(boxes, 0)
    assert merged.names == ("NUMA node 0-1,4", "63.9 to 64 GiB")
    assert detail.summarised(merged).names[0] == "3 × NUMA node 0-1,4"


def test_merged_names_may_have_numbers_that_no_cpu_has():
    boxes = [Box(kind="socket", names=(f"socket {n}",), cores=((Cell(cpu=n % 8),),)) for n in (65536, 65537, 90000)]
    (merged,) = detail.merged(boxes, 0)
    assert merged.names == ("socket 65536-65537,90000",)


def test_signs_stay_where_cpus_are_lists():
    cores = tuple((Cell(cpu=cpu, state=model.State.RESERVED, sign="r" if cpu < 2 else ""),) for cpu in range(4))
    assert detail.summarised(Box(kind="l3", names=("L3",), cores=cores)).notes == ("4 cores", "CPUs 0-3", "r on 0-1")


@pytest.mark.parametrize("cpus", SIZES)
def test_without_utf_8_a_picture_is_ascii(cpus):
    shown = text.plain(text.draw(picture(cpus), 80, ascii_only=True))
    assert shown.isascii()
    assert "+-" in shown


def test_more_numa_nodes_than_a_table_has_room_for_get_a_line_each():
    table = tuple((node, tuple(10 if node == other else 32 for other in range(32))) for node in range(32))
    wide = model.Picture(title="t", subtitle="s", facts=(), boxes=(Box(kind="cpus", names=("CPUs",)),), distances=table)
    lines = text.plain(text.draw(wide, 80)).splitlines()
    assert "from node 1   10 to 1; 32 to 0, 2-31" in lines


def test_every_style_that_a_line_uses_is_one_that_rich_knows():
    from rich.style import Style

    assert all(Style.parse(look) for look in text.STYLES.values())
    used = {style for line in text.draw(picture(32), 80) for _, style in line}
    assert not {style for style in used if re.fullmatch(r"(name|frame)\..*", style)} - {
        f"{part}.{kind}" for part in ("name", "frame") for kind in ("socket", "numa", "die", "l3", "type")
    }
