"""`raddle presets` shows what the webhook goes by, as a table, one row whole, and data."""

import json

import yaml
from click.testing import CliRunner

from raddle_operator.cli import main
from raddle_operator.presets.rows import Preset, presets


def test_all_rows_are_listed_by_name():
    done = CliRunner().invoke(main, ["presets"])
    assert done.exit_code == 0
    first_words = [line.split()[0] for line in done.output.splitlines()[1:]]
    assert first_words == [row.name for row in presets()]


def test_one_row_says_why_a_server_is_left_alone_and_what_to_do():
    done = CliRunner().invoke(main, ["presets", "vllm-cpu"])
    assert "left alone unless VLLM_CPU_OMP_THREADS_BIND=nobind is set" in done.output
    assert "advice" in done.output


def test_as_data_every_field_is_there():
    as_json = CliRunner().invoke(main, ["presets", "-o", "json"])
    as_yaml = CliRunner().invoke(main, ["presets", "ollama", "-o", "yaml"])
    found = json.loads(as_json.output)
    assert {tuple(row) for row in found} == {tuple(found[0])}
    assert set(found[0]) == set(Preset.__dataclass_fields__)
    (ollama,) = yaml.safe_load(as_yaml.output)
    assert ollama["variables"] == {"LLAMA_ARG_THREADS": "{threads}"}


def test_a_name_that_is_none_is_a_usage_error_that_lists_them():
    done = CliRunner().invoke(main, ["presets", "olama"])
    assert done.exit_code == 2
    assert "no preset olama" in done.output
    assert "ollama" in done.output
