"""The form of tests/machines/*.txt: what is packed is unpacked again, and people find what they would look for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import machines

DIRECTORIES = (
    "proc", "sys/devices/system/cpu", "sys/devices/system/cpu/cpu{}", "sys/devices/system/cpu/cpu{}/cache/index0",
    "sys/devices/system/cpu/cpu{}/cache/index1", "sys/devices/system/node/node{}",
)  # fmt: skip
LINE = st.text("0 12x-,;[]{}=#ab\t", max_size=8)
TEXT = LINE.filter(lambda line: not line.startswith("\t")) | st.lists(LINE, max_size=4).map("a\n".join)
FILES = st.dictionaries(
    st.builds(
        "{}/{}".format,
        st.builds(str.format, st.sampled_from(DIRECTORIES), st.integers(0, 12)),
        st.sampled_from(("a", "b")),
    ),
    (st.sampled_from(("0", "1", "")) | TEXT).map(lambda text: text.rstrip() + "\n"),
    max_size=60,
)


@given(FILES)
def test_what_is_packed_is_unpacked_again(files):
    assert machines.files_in(machines.pack(files, "how it was made")) == files


@pytest.mark.parametrize("name", machines.names())
def test_a_recorded_machine_is_packed_as_the_recorder_does(name):
    archive = (machines.ARCHIVES / f"{name}.txt").read_text()
    comment = "\n".join(line[2:] for line in archive.splitlines() if line.startswith("# "))
    assert machines.pack(machines.files_in(archive), comment) == archive


def test_a_file_of_all_cpus_is_a_line():
    files = {f"cpu{cpu}/core_id": f"{cpu % 4 // 2}\n" for cpu in (0, 1, 2, 3, 7)}
    files |= {f"cpu{cpu}/die_id": "0\n" for cpu in (0, 1, 2, 3, 7)} | {"cpu/online": "0-3,7\n"}
    assert machines.pack(files, "Made up.").splitlines() == [
        "# Made up.",
        "[cpu]",
        "online = 0-3,7",
        "[cpu{0-3,7}]",
        "core_id = 0 x2; 1 x3",
        "die_id = 0",
    ]


@pytest.mark.parametrize(
    ("archive", "told"),
    [
        ("[/etc]\npasswd = 1", "line 1: .* leads outside"),
        ("[sys/../..]", "line 1: .* leads outside"),
        ("[cpu{0-2}]\ncore_id = 0; 1", "line 2: core_id has 2 texts for 3 directories"),
        ("[sys]\n\nonline", "line 3: 'online' is neither"),
    ],
)
def test_a_malformed_line_is_told(archive, told):
    with pytest.raises(ValueError, match=told):
        machines.files_in(archive)
