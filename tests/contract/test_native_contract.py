"""The native shim gives the answers of the Python code, which is the reference: plan, reasons, quota, affinity.

Its pure parts run here under the address and undefined-behaviour sanitizers; any finding of theirs ends the harness.
"""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from support.native_parts import compiled, quota

from raddle import env, keys
from raddle.cpus import cpuset
from raddle.process import current, resolution
from raddle.process.cgroup import read_limits
from raddle_operator.injection import explain

SEED = 20261122


EDGES = (
    "",
    "0",
    "-0",
    "-1",
    "1",
    "01",
    "+1",
    "1.0",
    " 1",
    "1 ",
    "1_0",
    "0x1",
    "1e3",
    "²",
    "٣",
    "9" * 20,
    "9" * 21,
    "0" * 21,
)


def resolved(line):
    """What Python makes of the line; None where the plan can't be used."""
    text, cpus, quota, workers, *owner = line.split("\t")
    try:
        fields = env.decode(text)
    except env.PlanError:
        return None
    facts = current.Facts(cpuset.parse_list(cpus) if cpus else None, float(quota) if quota else None, int(workers))
    facts.owner = "".join(owner)
    return resolution.resolve(fields, facts)


def reference(line):
    """The values that Python comes to, as the harness prints them."""
    found = resolved(line)
    if found is None:
        return "error"
    values = {
        "intra_op": found.intra_op,
        "inter_op": found.inter_op,
        "spinning": found.spinning,
        "spin_duration_us": found.spin_duration_us,
    }
    values |= {"cap": found.cap, "exclusive": int(found.exclusive)}
    return " ".join(f"{key}={'-' if value is None else value}" for key, value in values.items())


# What chance alone would hardly ever draw together, on the CPUs 4-7 that the random machines have.
ON_EXCLUSIVE_CPUS = {"spinning": "bounded", "exclusive_cpus": 4, "streams": 1, "workers": 1, "concurrent_runs": 1}


def random_plan(rng):
    fields = {"v": 1}
    for key, (low, high) in keys.NUMBERS.items():
        if rng.random() < 0.3:
            fields[key] = rng.choice([low, high, rng.randint(low, min(high, 12)), rng.randint(low, high)])
    for key, allowed in keys.WORDS.items():
        if rng.random() < 0.5:
            fields[key] = rng.choice(allowed)
    if rng.random() < 0.3:
        fields |= ON_EXCLUSIVE_CPUS
    parts = [f"{key}={value}" for key, value in fields.items()]
    rng.shuffle(parts)
    return ";".join(parts)


def mutated(rng, text):
    at = rng.randrange(len(text))
    return rng.choice([
        text[:at],
        text[:at] + rng.choice("=;0v9-") + text[at:],
        text[:at] + text[at + 1 :],
        text[:at] + rng.choice("=;0129ax") + text[at + 1 :],
    ])  # fmt: skip


def because(line):
    found = resolved(line)
    keys = ("intraOp", "interOp", "globalIntraOp", "spinning")
    return "error" if found is None else "|".join(found.because.get(key, "") for key in keys)


def size_of_the_global_pool(line):
    found = resolved(line)
    return (
        "error"
        if found is None
        else f"global_intra_op={'-' if found.global_intra_op is None else found.global_intra_op}"
    )


def random_lines(count):
    rng = random.Random(SEED)
    lines = []
    for _ in range(count):
        text = random_plan(rng)
        if rng.random() < 0.3:
            text = mutated(rng, text)
        first = rng.randrange(8176)
        cpus = rng.choice(
            ["", "4-7", str(first), f"{first}-{first + rng.randrange(16)}", f"{first},{first + 2}-{first + 5}"]
        )
        quota = rng.choice(["", "0.1", "0.5", "1", "1.5", "2", "3.999", "4", "64", "100000"])
        quota = rng.choice([quota, f"{rng.uniform(0.01, 20):.4f}", f"{rng.uniform(0.01, 2e5):.5g}"])
        owner = rng.choice(["", "", "DRA CPU claim", "nri-plugins"]) if cpus else ""
        lines.append(f"{text}\t{cpus}\t{quota}\t{rng.choice([1, 1, 2, 3, 8, 200])}\t{owner}")
    return lines


def test_every_number_has_the_same_bounds(answers):
    lines = []
    for key, (low, high) in keys.NUMBERS.items():
        values = {low - 1, low, high, high + 1, -1, 0}
        lines += [f"v=1;{key}={value}\t0-3\t\t1" for value in [*sorted(values), *EDGES]]
    assert answers(lines) == [reference(line) for line in lines]


def test_every_word_is_known_and_no_other(answers):
    lines = []
    for key, allowed in keys.WORDS.items():
        spellings = (*allowed, "", "x", allowed[0].swapcase(), ", ".join(allowed), allowed[0] + " ", allowed[0][:-1])
        lines += [f"v=1;{key}={word}\t0-3\t1.5\t1" for word in spellings]
    assert answers(lines) == [reference(line) for line in lines]


def test_random_plans_come_to_the_same_values_and_reasons_on_random_machines(answers):
    lines = random_lines(4000)
    assert answers(lines) == [reference(line) for line in lines]
    assert answers(lines, "--because") == [because(line) for line in lines]
    assert answers(lines, "--global") == [size_of_the_global_pool(line) for line in lines]


def test_explain_names_the_counts_that_the_door_completes(answers):
    lines = [line.partition("\t")[0] for line in random_lines(1000)]
    # Python can't use a plan that the door can't, of which explain names none.
    expected = [
        "error"
        if resolved(f"{line}\t\t\t1") is None
        else "".join(f"{name}={count} " for name, count in explain.completed(line).items())
        for line in lines
    ]
    given = answers(lines, "--completed")
    assert [sorted(line.split()) for line in given] == [sorted(line.split()) for line in expected]


FILE = 'EXCLUSIVE_CPUS="4-6"\nISOLATED_CPUS="7"\nSHARED_CPUS="0-3"\n'
LONG = ",".join(["4-7"] * 1024)
# On the CPUs 4-7: nri-plugins' file, variables -> who says that these are the container's own
OWNERS = [
    ("", (), ""),
    ("", ("DRA_CPUSET_a=4-7", "HOME=/"), "DRA CPU claim"),
    ("", ("DRA_CPUSET_a=4,6", "DRA_CPUSET_b=5,7"), "DRA CPU claim"),
    # The driver's development version tells the last claim's CPUs again.
    ("", ("DRA_CPUSET_a=4,6", "DRA_CPUSET_b=5,7", "DRA_CPUSET_ASSIGNED=5,7"), "DRA CPU claim"),
    ("", ("DRA_CPUSET_a=4-7", "DRA_CPUSET_b=4-5"), "DRA CPU claim"),
    ("", ("DRA_CPUSET_=4-7",), "DRA CPU claim"),
    ("", ("DRA_CPUSET_a= 4 - 7 ", "DRA_CPUSET_b="), "DRA CPU claim"),
    # Moved since, or the thread has CPUs of its own.
    ("", ("DRA_CPUSET_a=4-6",), ""),
    ("", ("DRA_CPUSET_a=4-8",), ""),
    ("", ("DRA_CPUSET_a=0-3",), ""),
    ("", ("DRA_CPUSET_a=4-7", "DRA_CPUSET_b=8"), ""),
    # What a driver says that moves claims.
    ("", ("DRA_CPUSET_a=dynamic",), ""),
    ("", ("DRA_CPUSET_a=4-7", "DRA_CPUSET_b=dynamic"), ""),
    ("", ("DRA_CPUSET_a=",), ""),
    ("", ("DRA_CPUSET_a=7-4",), ""),
    ("", ("DRA_CPUSET_a=4-7,",), ""),
    ("", ("DRA_CPUSET_a=4-7,99999999999",), ""),
    ("", ("DRA_CPUSET_a=4-7\u00a0",), ""),
    ("", ("DRA_CPUSET_a=" + LONG,), "DRA CPU claim"),
    ("", ("DRA_CPUSET_a=" + LONG, "DRA_CPUSET_b=44"), ""),
    ("", ("DRA_CPUSET_a=" + LONG + ",4",), ""),
    ("", ("dra_cpuset_a=4-7", "XDRA_CPUSET_a=4-7", "DRA_CPUSET=4-7"), ""),
    (FILE, (), "nri-plugins"),
    (FILE, ("DRA_CPUSET_a=4-7",), "DRA CPU claim"),
    (FILE, ("DRA_CPUSET_a=dynamic",), "nri-plugins"),
    ('EXCLUSIVE_CPUS="4-7"', (), "nri-plugins"),
    ('ISOLATED_CPUS="4-7"\n', (), "nri-plugins"),
    ('SHARED_CPUS="4-7"\n', (), ""),
    ('EXCLUSIVE_CPUS="4-5"\nSHARED_CPUS="6-7"\n', (), ""),
    ('EXCLUSIVE_CPUS="4-8"\n', (), ""),
    ('EXCLUSIVE_CPUS="4-7"\nISOLATED_CPUS="x"\n', (), ""),
    ('EXCLUSIVE_CPUS="4-7\n', (), ""),
    ('EXCLUSIVE_CPUS="4-7" # why\n', (), ""),
    ('EXCLUSIVE_CPUS=""4-7"\n', (), ""),
    ("EXCLUSIVE_CPUS=4-7\n", (), ""),
    ('NOT_EXCLUSIVE_CPUS="4-7"\n', (), ""),
    (f'EXCLUSIVE_CPUS="{LONG},4"\n', (), ""),
]


def test_only_who_names_exactly_the_cpus_that_there_are_is_believed_that_they_are_the_containers_own(answers):
    lines = ["\t".join(["4-7", file.replace("\n", "|"), *variables]) for file, variables, _ in OWNERS]
    environs = [dict(variable.split("=", 1) for variable in variables) for _, variables, _ in OWNERS]
    found = [current.owner_of(0b11110000, environ, file) for (file, *_), environ in zip(OWNERS, environs, strict=True)]
    assert found == [owner for *_, owner in OWNERS]
    assert answers(lines, "--owner") == [owner or "-" for owner in found]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "v=1",
        "v=1;",
        "v=01",
        "v=2;intra_op=1",
        "v=" + "9" * 30,
        "intra_op=1",
        "v=1;v=2",
        "v=2;v=1;intra_op=2;intra_op=3",
        "v=1;intra",
        "v=1;=3",
        "v=1;new=1;a=b=c",
        "v=1;" + "x" * 60,
        "v=1;intra_op=0",
        "v=1;intra_op=2=3",
        "v=1;intra_op=" + "7" * 60,
        "v=1;spinning=it's",
        'v=1;spinning="it\'s"',
        "v=1;spinning=a\\b\x01\x7f",
        "v=1;session.intra_op.spin_duration_us=-2",
        "v=1;cuda.gpu_mem_limit=10000000000000000000",
        "v=1;cuda.cudnn_conv_algo_search=exhaustive",
        "v=1;x=" + "y" * 4090,
        "v=1;x=" + "y" * 4091,
        "v=1;x=" + "y" * 1_000_000,
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_by_both_for_the_same_reason(answers, text):
    """What they quote of it is told in the manner of each language."""
    (found,) = answers([text], "--error")
    try:
        env.decode(text)
        assert found == "-"
    except env.PlanError as error:
        words = [
            re.sub(r"is \d+ characters long.*|is longer than.*|None|(['\"]).*\1", "", one)
            for one in (found, str(error))
        ]
        assert words[0] == words[1]


def random_tree(rng, root):
    """A /proc and cgroup mounts: version 1, 2 or both, nested, seen through a namespace, some files odd."""
    names = [rng.choice(["kubepods", "pod1", "box", "a b"]) for _ in range(rng.randrange(4))]
    own = rng.choice(["/" + "/".join(names), "/" + "/".join(names), "/", "/../other", "/.."])
    shown = "/" + "/".join(names[: rng.randrange(len(names) + 1)])
    mount_root = rng.choice(["/", shown, shown, "/..", "/../..", "/elsewhere"])
    version = rng.choice([1, 2, 2])
    point = rng.choice(["/sys/fs/cgroup", "/sys/fs/cgroup/cpu,cpuacct", "/mnt/c g"])
    kind, options = ("cgroup", "rw,cpu,cpuacct") if version == 1 else ("cgroup2", "rw")
    escaped = [text.replace(" ", "\\040") for text in (mount_root, point)]
    mount = f"30 23 0:26 {escaped[0]} {escaped[1]} rw,nosuid - {kind} cgroup {options}\n"
    other = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n25 1 8:1 / / rw - ext4 /dev/sda rw\n"
    lines = {1: f"3:cpu,cpuacct:{own}\n2:memory:/\n0::/\n", 2: f"0::{own}\n"}[version]
    files = {"proc/self/cgroup": rng.choice([lines, lines, lines, "", "x\n"]), "proc/self/mountinfo": mount + other}
    quotas = {1: ["-1", "50000", "150000", "0", "abc"], 2: ["max 100000", "150000 100000", "50000 10000", "1", "0 0"]}
    folder = point.lstrip("/")
    for part in ["", *names]:
        folder = f"{folder}/{part}" if part else folder
        if rng.random() < 0.9:
            files[f"{folder}/cpu.weight"] = "1"
            if version == 1:
                files[f"{folder}/cpu.cfs_quota_us"] = rng.choice(quotas[1])
                files[f"{folder}/cpu.cfs_period_us"] = rng.choice(["100000", "100000", "25000", "0"])
            else:
                files[f"{folder}/cpu.max"] = rng.choice(quotas[2])
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n" if rng.random() < 0.9 else text)


def test_the_quota_is_read_alike_from_every_kind_of_tree(answers, tmp_path):
    rng = random.Random(SEED)
    roots = [tmp_path / str(number) for number in range(300)]
    for root in roots:
        random_tree(rng, root)
    expected = [read_limits(str(root)) for root in [*roots, Path("/")]]
    assert answers([*roots, ""], "--quota") == [quota(found) for found in expected]
    assert sum(found.quota_cpus is not None for found in expected) > 30


@pytest.mark.slow
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
        f"pinned {one}",
        f"free {one} {other}",
    ], done.stderr


@pytest.mark.slow
def test_a_lock_that_a_thread_of_the_parent_held_at_the_fork_is_free_in_the_child(tmp_path):
    built = compiled(tmp_path, "lock.c", ("sys", "text"))
    done = subprocess.run([built], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["alone 1", "held 0", "forked 1", "held 0", "free 1"]
