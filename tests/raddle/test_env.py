"""The environment contract: RADDLE_PLAN's text in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle import env

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "intra": st.integers(1, env.MAX_THREADS),
        "inter": st.integers(1, env.MAX_THREADS),
        "spin": st.sampled_from(env.SPINNING),
        "spin_us": st.integers(0, 1000000),
        "mode": st.sampled_from(env.EXECUTION_MODES),
        "graph": st.sampled_from(env.GRAPH_LEVELS),
        "aff": st.sampled_from(env.AFFINITY),
        "excl": st.integers(0, 65536),
        "smt": st.integers(0, 1),
        "streams": st.integers(1, 65536),
        "workers": st.integers(1, 65536),
        "min": st.integers(1, env.MAX_THREADS),
        "max": st.integers(1, env.MAX_THREADS),
        "floor": st.integers(0, 1),
        "existing": st.sampled_from(env.EXISTING),
        "omp": st.integers(1, env.MAX_THREADS),
        "blas": st.integers(1, env.MAX_THREADS),
    },
)


@given(FIELDS)
def test_what_is_encoded_decodes_to_the_same_fields(fields):
    assert env.decode(env.encode(fields)) == fields


@given(FIELDS)
def test_every_plan_fits_the_bytes_reserved_for_it(fields):
    assert len(env.encode(fields).encode()) <= env.RESERVED_SHIM


@given(st.text() | st.text("v=1;intra,spn02-9 \n\0é٣", max_size=60))
def test_decoding_any_text_gives_fields_or_a_plan_error(text):
    try:
        fields = env.decode(text)
    except env.PlanError:
        return
    assert env.decode(env.encode(fields)) == fields


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "key=value"),
        ("intra=2", "version"),
        ("v=2;intra=2", "version"),
        ("v=1;intra", "key=value"),
        ("v=1;intra=0", "from 1 to 1024"),
        ("v=1;intra=-1", "from 1 to 1024"),
        ("v=1;intra=2.5", "from 1 to 1024"),
        ("v=1;intra=1025", "from 1 to 1024"),
        ("v=1;intra=٣", "from 1 to 1024"),
        ("v=1;intra=99999999999999999999", "from 1 to 1024"),
        ("v=1;spin=maybe", "never, bounded, always"),
        ("v=1;aff=/lib/evil.so", "none, numa, core"),
        ("v=1;" + "x=1;" * 2000, "at most"),
    ],
)
def test_a_plan_that_can_not_be_used_is_refused_with_what_is_allowed(text, words):
    with pytest.raises(env.PlanError, match=words):
        env.decode(text)


def test_a_field_of_a_newer_shim_is_ignored():
    assert env.decode("v=1;intra=2;hyperspin=9") == {"intra": 2}
