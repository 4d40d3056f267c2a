"""The environment contract: RADDLE_PLAN's text in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle import env, keys

# Every key that there is, each with any value it may have.
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.integers(low, high) for key, (low, high) in keys.NUMBERS.items()},
        **{key: st.sampled_from(words) for key, words in keys.WORDS.items()},
    },
)
LONGEST = {
    **{key: max(low, high, key=lambda number: len(str(number))) for key, (low, high) in keys.NUMBERS.items()},
    **{key: max(words, key=len) for key, words in keys.WORDS.items()},
}


@given(FIELDS)
def test_what_is_encoded_decodes_to_the_same_fields(fields):
    assert env.decode(env.encode(fields)) == fields


def test_the_longest_plan_fits_the_bytes_reserved_for_it():
    text = env.encode(LONGEST)
    assert env.decode(text) == LONGEST
    assert len(text.encode()) <= env.RESERVED_SHIM


@given(st.text() | st.text("v=1;intra,spn02-9 \n\0é٣", max_size=60))
def test_decoding_any_text_gives_fields_or_a_plan_error(text):
    try:
        fields = env.decode(text)
    except env.PlanError:
        return
    assert env.decode(env.encode(fields)) == fields


def test_a_key_that_names_a_file_or_a_library_is_none_of_the_plans():
    text = "v=1;intra_op=2;session.custom_ops=/lib/evil.so;ep.context_file_path=/x;cuda.user_compute_stream=1"
    assert env.decode(text) == {"intra_op": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "key=value"),
        ("intra_op=2", "version"),
        ("v=2;intra_op=2", "version"),
        ("v=1;intra", "key=value"),
        ("v=1;intra_op=0", "from 1 to 1024"),
        ("v=1;intra_op=-1", "from 1 to 1024"),
        ("v=1;intra_op=2.5", "from 1 to 1024"),
        ("v=1;intra_op=1025", "from 1 to 1024"),
        ("v=1;intra_op=٣", "from 1 to 1024"),
        ("v=1;intra_op=99999999999999999999", "from 1 to 1024"),
        ("v=1;session.force_spinning_stop=2", "from 0 to 1"),
        ("v=1;session.intra_op.spin_duration_us=-2", "from -1 to 9999999"),
        ("v=1;session.intra_op.spin_duration_us=--1", "from -1 to 9999999"),
        ("v=1;cuda.gpu_mem_limit=10000000000000000000", "from 0 to 9999999999999999999"),
        ("v=1;cuda.cudnn_conv_algo_search=BEST", "EXHAUSTIVE, HEURISTIC, DEFAULT"),
        ("v=1;spinning=maybe", "never, bounded, always"),
        ("v=1;affinity=/lib/evil.so", "none, numa, core"),
        ("v=1;" + "x=1;" * 2000, "at most"),
    ],
)
def test_a_plan_that_can_not_be_used_is_refused_with_what_is_allowed(text, words):
    with pytest.raises(env.PlanError, match=words):
        env.decode(text)


def test_a_field_of_a_newer_shim_is_ignored():
    assert env.decode("v=1;intra_op=2;hyperspin=9") == {"intra_op": 2}
