"""Fuzzes what reads untrusted text in Python: RADDLE_PLAN, the plan annotation. `text_readers.py INPUTS SEED`.

The engine is atheris (libFuzzer with Python's coverage): tests/fuzz/test_fuzz_texts.py has an environment with it.
Whatever the text, the readers return bounded values or raise their one documented error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

TEXTS = (
    "v=1;intra_op=4;intra_op_without_shim=3;inter_op=1;spinning=bounded;spin_duration_us=200;execution_mode=sequential;affinity=none;exclusive_cpus=0;streams=1;workers=1;existing_values=respect",
    "v=1;intra_op=8;global_thread_pool=1;global_intra_op=16;concurrent_runs=4;floor=1;min_intra_op=2;min_inter_op=2;execution_mode=parallel;exclusive_cpus=8;graph_optimization_level=all",
    "v=1;exclusive_cpus=4;cpus=0-15;cores=0-7|8-15;nodes=0-3,8-11|4-7,12-15;l3=0-3|4-7;kinds=0-1|2-7;slow=1;isolated=2;gpu_nodes=1",
    "v=1;session.intra_op.allow_spinning=0;cuda.gpu_mem_limit=1073741824;openvino.num_streams=2;allocator=mimalloc",
    "v=1;cuda.arena_extend_strategy=kSameAsRequested;session.intra_op.spin_duration_us=-1;observe=runs;gpu=1",
    (
        '{"v":1,"set":{"intraOp":4},"because":{"intraOp":"cap"},"node":"n","budget":{"quota_cpus":1.5,"workers":2},'
        '"policy":{"intra_op":4,"config_entries":{"session.dynamic_block_base":"4"},"runtimes":["onnxruntime"]},"by":"x"}'
    ),
)


def check(data: bytes) -> None:
    """Gives one input to every reader. Raises AssertionError, or what a reader should not have raised."""
    # The first bytes are the container's facts, the rest is the text.
    quota_milli, cpus, workers = struct.unpack("<IQB", data[:13].ljust(13, b"\0"))
    text = data[13:].decode("utf-8", "surrogateescape")
    _check_plan(text, quota_milli / 1000 or None, cpus or None, workers or 1)
    _check_annotation(text)


def _check_plan(text: str, quota_cpus: float | None, cpus: int | None, workers: int) -> None:
    from raddle import env, keys
    from raddle.cpus import cpuset
    from raddle.process import current, resolution

    try:
        fields = env.decode(text)
    except env.PlanError as error:
        if len(str(error)) > 400:
            raise AssertionError(f"a line of {len(str(error))} characters") from error
        return
    _hold(env.decode(env.encode(dict(fields))) == fields, "encode and decode are inverse")
    found = resolution.resolve(fields, current.Facts(cpus, quota_cpus, workers))
    # Counts are integers: env's table says which words there are.
    pairs: list[tuple[Any, Any]] = [(fields.get("intra_op"), found.intra_op), (fields.get("inter_op"), found.inter_op)]
    if fields.get("global_thread_pool"):
        pairs.append((fields.get("global_intra_op", fields.get("intra_op")), found.global_intra_op))
    for planned, value in pairs:
        _hold((planned is None) == (value is None), "a value is there exactly where it is planned")
        _hold(planned is None or 1 <= value <= planned, "a count is from one to the plan's")
    _hold(found.spinning in (None, *keys.WORDS["spinning"]), "spin is one of the words")
    _hold(found.spinning != "bounded" or 0 <= found.spin_duration_us <= 1000000, "spinning is bounded")
    _hold(found.cap is None or found.cap >= 1, "the cap is a thread at least")
    if cpus:
        _check_placed({**fields, "exclusive_cpus": cpuset.count(cpus)}, cpus)


def _check_placed(fields: dict[str, int | str], cpus: int) -> None:
    from raddle.cpus import cpuset, places
    from raddle.process import current

    placed, size = current.place(fields, cpus), cpuset.count(cpus)
    if placed is not None and placed.cpus is not None:
        _hold(1 <= placed.threads <= size, "a pool has a thread, and no more than CPUs")
        groups = places.groups(fields, cpus, size, "core")
        _hold(all(group and not group & ~cpus for group in (placed.cpus, *groups)), "threads are on the process's CPUs")


def _check_annotation(text: str) -> None:
    from raddle.planning import policy, wire

    with contextlib.suppress(wire.WireError):
        recorded = wire.read_plan_text(text)
        again = policy.from_settings(json.loads(json.dumps(policy.to_settings(recorded.policy))))
        _hold(again == recorded.policy, "a policy that was read can be written and read again")


def _hold(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def fuzz(inputs: int, seed: int) -> None:
    """Runs in the environment with atheris; ends the process, with another status than 0 at a failing input."""
    atheris = importlib.import_module("atheris")

    with atheris.instrument_imports(include=["raddle"]):
        from raddle import env
        from raddle.process import current, resolution  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        corpus, words = Path(folder, "corpus"), Path(folder, "words")
        corpus.mkdir()
        for number, text in enumerate(TEXTS):
            (corpus / str(number)).write_bytes(struct.pack("<IQB", 1500, 0xFF, 1 + number) + text.encode())
        keys = sorted({part for text in TEXTS for part in re.findall(r"[A-Za-z_.]{2,}", text)} | set(env._KEYS))
        words.write_text("".join(f'"{word}"\n' for word in keys))
        options = [f"-runs={inputs}", f"-seed={seed}", "-max_len=4200", f"-dict={words}", "-verbosity=0", str(corpus)]
        atheris.Setup([sys.argv[0], *options], check)
        atheris.Fuzz()


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]))
