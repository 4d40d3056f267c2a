"""The native shim gives the answers of the Python code, which is the reference: plan, reasons, quota, affinity.

Its pure parts run here under the address and undefined-behaviour sanitizers; any finding of theirs ends the harness.
"""

import importlib.util
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from raddle import cpuset, env
from raddle.adapters import live
from raddle.cgroup import read_allotment

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "runtime" / "native"
PARTS = ("sys", "text", "cpuset", "plan", "resolve", "cgroup", "machine", "placement")
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SEED = 20261122


def load(name):
    """A neighbour's generators: the same inputs go to every language."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = load("test_node_contract")


def compiled(folder, source, parts):
    """The harness with these parts of the shim and the sanitizers."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    built = folder / Path(source).stem
    sources = [HERE / source, *(NATIVE / f"{part}.c" for part in parts)]
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command = [compiler, *SANITIZED, *warnings, "-pthread", "-DRD_HOSTED", f"-I{NATIVE}", "-o", built, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find -lasan" in done.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """answers(lines, mode): one answer of the harness for each line."""
    built = compiled(tmp_path_factory.mktemp("native"), "resolve.c", PARTS)

    def ask(lines, *mode):
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run([built, *mode], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = done.stdout.split("\n")[:-1]
        assert len(found) == len(lines)
        return found

    return ask


def resolved(line):
    """What Python makes of the line; None where the plan can't be used."""
    text, cpus, quota, workers = line.split("\t")
    try:
        fields = env.decode(text)
    except env.PlanError:
        return None
    facts = live.Facts(cpuset.parse_list(cpus) if cpus else None, float(quota) if quota else None, int(workers))
    return live.resolve(fields, facts)


def because(line):
    found = resolved(line)
    keys = ("intra", "inter", "global_intra", "spin")
    return "error" if found is None else "|".join(found.because.get(key, "") for key in keys)


def size_of_the_global_pool(line):
    found = resolved(line)
    return "error" if found is None else f"global_intra={'-' if found.global_intra is None else found.global_intra}"


def random_lines(count):
    rng = random.Random(SEED)
    lines = []
    for _ in range(count):
        text = cases.random_plan(rng)
        if rng.random() < 0.3:
            text = cases.mutated(rng, text)
        first = rng.randrange(8176)
        cpus = rng.choice(
            ["", "4-7", str(first), f"{first}-{first + rng.randrange(16)}", f"{first},{first + 2}-{first + 5}"]
        )
        quota = rng.choice(["", "0.1", "0.5", "1", "1.5", "2", "3.999", "4", "64", "1000000", "12345678", "0.00001234"])
        quota = rng.choice([quota, f"{rng.uniform(0.01, 20):.4f}", f"{rng.uniform(0.01, 2e5):.5g}"])
        lines.append(f"{text}\t{cpus}\t{quota}\t{rng.choice([1, 1, 2, 3, 8, 200])}")
    return lines


def test_every_number_has_the_same_bounds(answers):
    lines = []
    for key, (low, high) in cases.numbers().items():
        values = {low - 1, low, high, high + 1, -1, 0}
        lines += [f"v=1;{key}={value}\t0-3\t\t1" for value in [*sorted(values), *cases.EDGES]]
    assert answers(lines) == [cases.reference(line) for line in lines]


def test_every_word_is_known_and_no_other(answers):
    lines = []
    for key, allowed in cases.words().items():
        words = (*allowed, "", "x", allowed[0].swapcase(), ", ".join(allowed), allowed[0] + " ", allowed[0][:-1])
        lines += [f"v=1;{key}={word}\t0-3\t1.5\t1" for word in words]
    assert answers(lines) == [cases.reference(line) for line in lines]


def test_random_plans_come_to_the_same_values_and_reasons_on_random_machines(answers):
    lines = random_lines(4000)
    assert answers(lines) == [cases.reference(line) for line in lines]
    assert answers(lines, "--because") == [because(line) for line in lines]
    assert answers(lines, "--global") == [size_of_the_global_pool(line) for line in lines]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "v=1;",
        "v=2;intra=1",
        "v=" + "9" * 30,
        "intra=1",
        "v=1;v=2",
        "v=1;intra",
        "v=1;" + "x" * 60,
        "v=1;intra=0",
        "v=1;intra=" + "7" * 60,
        "v=1;spin=it's",
        'v=1;spin="it\'s"',
        "v=1;spin=a\\b\x01\x7f",
        "v=1;session.intra_op.spin_duration_us=-2",
        "v=1;cuda.gpu_mem_limit=10000000000000000000",
        "v=1;cuda.cudnn_conv_algo_search=exhaustive",
        "v=1;x=" + "y" * 4090,
        "v=1;x=" + "y" * 4091,
        "v=1;x=" + "é" * 4090,
        "v=1;x=" + "😀" * 4091,
        "v=1;x=" + "y" * 1_000_000,
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_in_the_same_words(answers, text):
    try:
        env.decode(text)
        expected = "-"
    except env.PlanError as error:
        expected = str(error)
    assert answers([text], "--error") == [expected]


def test_the_quota_is_read_alike_from_every_kind_of_tree(answers, tmp_path):
    rng = random.Random(SEED)
    roots = [tmp_path / str(number) for number in range(300)]
    for root in roots:
        cases.random_tree(rng, root)
    expected = [read_allotment(str(root)).quota_cpus for root in [*roots, Path("/")]]
    found = [None if text == "-" else float(text) for text in answers([*roots, Path("/")], "--quota")]
    assert found == expected
    assert sum(quota is not None for quota in expected) > 30


def test_the_thread_that_makes_a_session_is_on_the_pools_cpus_meanwhile_and_nobody_inherits_them(tmp_path):
    """Its memory is where it is first written to. Threads that have no place of their own get all CPUs back."""
    one, other = (sorted(os.sched_getaffinity(0)) * 2)[:2]
    if one == other:
        pytest.skip("needs two CPUs")
    built = compiled(tmp_path, "pool.c", ("sys", "text", "cpuset", "threads", "elf"))
    command = ["taskset", "-c", f"{one},{other}", built, str(one), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        f"before {one} {other}",
        f"meanwhile {one}",
        f"after {one} {other}",
        f"tied {one}",
        f"free {one} {other}",
    ], done.stderr


def test_a_lock_that_a_thread_of_the_parent_held_at_the_fork_is_free_in_the_child(tmp_path):
    built = compiled(tmp_path, "lock.c", ("sys", "text"))
    done = subprocess.run([built], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["alone 1", "held 0", "forked 1", "held 0", "free 1"]


def test_a_report_is_not_waited_for_where_a_fifo_stands(tmp_path):
    built = compiled(tmp_path, "write.c", ("sys", "text", "cpuset"))
    os.mkfifo(tmp_path / "fifo")
    for name, answer in (("file", "1"), ("fifo", "0")):
        command = [built, tmp_path / name, "text"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == answer + "\n"
    assert (tmp_path / "file").read_text() == "text"
