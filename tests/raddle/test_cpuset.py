import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.cpus import cpuset

cpus = st.sets(st.integers(0, 2100), max_size=200)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("\n", []),
        ("(null)", []),
        ("0", [0]),
        ("0-3,8", [0, 1, 2, 3, 8]),
        (" 1 , 3 \n", [1, 3]),
        ("5-5", [5]),
        ("3,1,2,1", [1, 2, 3]),
        ("0-7:1/2", [0, 2, 4, 6]),
        ("0-9:2/5", [0, 1, 5, 6]),
        ("4-6:1/8", [4]),
        ("65535", [65535]),
    ],
)
def test_a_kernel_list_is_read(text, ids):
    assert cpuset.ids(cpuset.parse_list(text)) == ids


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1", "3-1", "1,,2", "0-7:1", "0-7:3/2", "0-7:1/0", "65536", "0-99999999999", "٣", "0x1", "1 2"]
)
def test_what_is_no_list_is_named_in_the_error(text):
    with pytest.raises(ValueError, match="CPU"):
        cpuset.parse_list(text)


@pytest.mark.parametrize(
    ("text", "ids"), [("f", [0, 1, 2, 3]), ("ff,00000001", [0, *range(32, 40)]), ("0000,00000000", []), ("", [])]
)
def test_a_kernel_mask_is_read(text, ids):
    assert cpuset.ids(cpuset.parse_mask(text)) == ids


@pytest.mark.parametrize("text", ["g", "0x1", "123456789", "1,,2", "1," * 3000 + "1"])
def test_what_is_no_mask_is_an_error(text):
    with pytest.raises(ValueError, match="CPU mask"):
        cpuset.parse_mask(text)


@given(cpus)
def test_a_list_reads_back_as_the_same_set(ids):
    mask = cpuset.of(ids)
    assert cpuset.parse_list(cpuset.format_list(mask)) == mask
    assert cpuset.ids(mask) == sorted(ids)
    assert cpuset.count(mask) == len(ids)


@given(cpus)
def test_a_mask_reads_back_as_the_same_set(ids):
    mask = cpuset.of(ids)
    digits = f"{mask:x}"
    words = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)][::-1]
    assert cpuset.parse_mask(",".join(words)) == mask


@given(cpus)
def test_a_list_is_the_shortest_one(ids):
    parts = cpuset.format_list(cpuset.of(ids)).split(",")
    edges = [[int(edge) for edge in part.split("-")] for part in parts if part]
    assert all(later[0] > earlier[-1] + 1 for earlier, later in itertools.pairwise(edges))


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 40), st.data())
def test_a_stride_takes_the_first_cpus_of_each_group(first, length, group, data):
    used = data.draw(st.integers(0, group))
    expected = [cpu for cpu in range(first, first + length + 1) if (cpu - first) % group < used]
    assert cpuset.ids(cpuset.parse_list(f"{first}-{first + length}:{used}/{group}")) == expected


def test_a_long_text_of_strides_costs_little():
    # 8 kB, the longest that an API object may hold; a loop over its groups would take minutes.
    assert cpuset.count(cpuset.parse_list(",".join(["0-65535:1/2"] * 680))) == 32768
