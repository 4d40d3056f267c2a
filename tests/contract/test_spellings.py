"""A number has one name, the policy's or the plan's: in camel case in JSON and YAML, in snake case everywhere else."""

import ast
import re
from pathlib import Path

from raddle import env, keys
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy

ROOT = Path(__file__).parents[2]
NAMES = {*Plan._fields, *Policy._fields}
# Bounds of the shim's own, which no policy and no plan has a name for.
BOUNDS = {"floor", "min_inter_op"}
# ONNX Runtime has the plain name.
OF_TORCH = {"torch_intra_op"}
ADAPTERS = sorted([*ROOT.glob("runtime/raddle/adapters/**/*.py"), *ROOT.glob("runtime/raddle/process/resolution.py")])


def snake(name):
    return re.sub(r"(?<=[a-z])(CPU|NUMA|[A-Z])", r"_\1", name).lower()


def recorded(path):
    """The names below which an adapter keeps a value, or the reason for it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            of = node.value
            if getattr(of, "attr", getattr(of, "id", "")) in ("values", "because") and isinstance(
                node.slice.value, str
            ):
                yield node.slice.value


def test_a_key_of_raddle_plan_is_the_snake_case_name():
    plain = {key for key in (*keys.NUMBERS, *keys.WORDS) if "." not in key}
    assert plain - NAMES - BOUNDS == set()
    assert plain & {*env.LISTS} == set()


def test_an_adapter_records_by_the_camel_case_name():
    used = {(path.name, name) for path in ADAPTERS for name in recorded(path)}
    assert {name for _, name in used} >= {"intraOp", "spinning", "executionMode"}
    assert [one for one in sorted(used) if snake(one[1]) not in NAMES | OF_TORCH or "_" in one[1]] == []
