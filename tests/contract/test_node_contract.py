"""The Node.js shim gives the answers of the Python code, which is the reference: plan, quota, affinity."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from raddle import __version__, cpuset, env, observe, record, report
from raddle.adapters import live
from raddle.cgroup import read_allotment

HARNESS = Path(__file__).with_name("resolve.cjs")
REPORT = Path(__file__).parents[2] / "runtime" / "node" / "report.cjs"
SEED = 20261121
# A JavaScript number holds every limit but this one exactly.
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


def answers(lines, *arguments):
    """One answer of the harness for each line."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([node, HARNESS, *arguments], input=text, capture_output=True, text=True, check=True)
    found = done.stdout.split("\n")[:-1]
    assert len(found) == len(lines)
    return found


def reference(line):
    text, cpus, quota, workers = line.split("\t")
    try:
        fields = env.decode(text)
    except env.PlanError:
        return "error"
    facts = live.Facts(cpuset.parse_list(cpus) if cpus else None, float(quota) if quota else None, int(workers))
    found = live.resolve(fields, facts)
    values = {"intra": found.intra, "inter": found.inter, "spin": found.spin, "spin_us": found.spin_us}
    values |= {"cap": found.cap, "exclusive": int(found.exclusive)}
    return " ".join(f"{key}={'-' if value is None else value}" for key, value in values.items())


def same(lines):
    for line, node in zip(lines, answers(lines), strict=True):
        assert node == reference(line), line


def numbers():
    """Key -> (lowest, highest) of every number that a plan may have."""
    return dict(env._NUMBERS)


def words():
    return dict(env._WORDS)


def test_every_number_has_the_same_bounds():
    lines = []
    for key, (low, high) in numbers().items():
        values = {low - 1, low, high, high + 1, -1, 0}
        lines += [f"v=1;{key}={value}\t0-3\t\t1" for value in [*sorted(values), *EDGES]]
    same(lines)


def test_every_word_is_known_and_no_other():
    lines = []
    for key, allowed in words().items():
        lines += [f"v=1;{key}={word}\t0-3\t1.5\t1" for word in (*allowed, "", "x", allowed[0].swapcase(), "__proto__")]
    same(lines)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "v=1",
        "v=1;",
        "v=2;intra=1",
        "v=01",
        "intra=1",
        "v=1;v=2",
        "v=2;v=1;intra=2;intra=3",
        "v=1;intra",
        "v=1;=3",
        "v=1;new=1;__proto__=1;constructor=x;toString=;a=b=c",
        "v=1;intra=2=3",
        "v=1;x=" + "y" * 4090,
        "v=1;x=" + "y" * 4091,
        "v=1;x=" + "é" * 4090,
        "v=1;x=" + "😀" * 4090,
        "v=1;x=" + "😀" * 4091,
    ],
)
def test_a_text_is_a_plan_for_both_or_for_neither(text):
    same([f"{text}\t0\t\t1"])


# What chance alone would hardly ever draw together, on the CPUs 4-7 that the random machines have.
ON_EXCLUSIVE_CPUS = {"spin": "bounded", "excl": 4, "streams": 1, "workers": 1, "runs": 1}


def random_plan(rng):
    fields = {"v": 1}
    for key, (low, high) in numbers().items():
        if rng.random() < 0.3:
            fields[key] = rng.choice([low, high, rng.randint(low, min(high, 12)), rng.randint(low, high)])
    for key, allowed in words().items():
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


def test_random_plans_come_to_the_same_values_on_random_machines():
    rng = random.Random(SEED)
    lines = []
    for _ in range(4000):
        text = random_plan(rng)
        if rng.random() < 0.3:
            text = mutated(rng, text)
        first = rng.randrange(64)
        cpus = rng.choice(
            ["", "4-7", str(first), f"{first}-{first + rng.randrange(16)}", f"{first},{first + 2}-{first + 5}"]
        )
        quota = rng.choice(["", "0.1", "0.5", "1", "1.5", "2", "3.999", "4", "64", f"{rng.uniform(0.01, 20):.4f}"])
        lines.append(f"{text}\t{cpus}\t{quota}\t{rng.choice([1, 1, 2, 3, 8, 200])}")
    same(lines)


# --- quota ----------------------------------------------------------------------------------------------------------


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


def test_the_quota_is_read_alike_from_every_kind_of_tree(tmp_path):
    rng = random.Random(SEED)
    roots = [tmp_path / str(number) for number in range(300)]
    for root in roots:
        random_tree(rng, root)
    expected = [read_allotment(str(root)).quota_cpus for root in [*roots, Path("/")]]
    found = [None if text == "-" else float(text) for text in answers([*roots, Path("/")], "--quota")]
    assert found == expected
    # The trees are worth something: many have a quota, and not all the same.
    assert len(set(expected)) > 4
    assert sum(quota is not None for quota in expected) > 30


def test_reports_name_this_version():
    assert f"const RADDLE = '{__version__}';" in REPORT.read_text()


# --- names and limits -----------------------------------------------------------------------------------------------

SHIM = REPORT.parent


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("raddle.cjs", env.PLAN),
        ("raddle.cjs", env.LOG),
        ("record.cjs", env.LOG),
        ("record.cjs", env.REPORT),
        ("report.cjs", env.REPORT),
        ("record.cjs", record.ANNOUNCED),
        ("onnxruntime.cjs", env.PLAN),
        ("onnxruntime.cjs", env.ORT_INTRA),
        ("onnxruntime.cjs", env.ORT_INTER),
    ],
)
def test_variables_have_the_same_names(file, name):
    assert name in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", (SHIM / file).read_text())


@pytest.mark.parametrize(
    ("file", "limits"),
    [
        (
            "report.cjs",
            [(report, name) for name in ("VERSION", "MAX_FILES", "MAX_BYTES", "MAX_BURST", "MAX_COMPLAINTS")],
        ),
        ("report.cjs", [(report, "MAX_LINE"), (env, "MAX_PLAN_TEXT"), (observe, "MODEL_END_BYTES")]),
        ("observe.cjs", [(observe, "MAX_THREADS_LISTED"), (report, "MAX_INPUTS")]),
        ("record.cjs", [(record, "MAX_SAMPLES")]),
        ("facts.cjs", [(live, "MAX_SIBLINGS"), (live, "MAX_PARENT_THREADS")]),
        ("plan.cjs", [(live, "DEFAULT_SPIN_US"), (env, "MAX_THREADS"), (env, "MAX_STREAMS"), (env, "MAX_PLAN_TEXT")]),
        ("kernel.cjs", [(cpuset, "MAX_CPUS")]),
    ],
)
def test_limits_are_the_same(file, limits):
    found = dict(re.findall(r"^const ([A-Z_]+) = ([0-9]+);", (SHIM / file).read_text(), re.MULTILINE))
    assert [(name, found[name]) for _, name in limits] == [
        (name, str(getattr(module, name))) for module, name in limits
    ]


def test_config_entries_and_providers_are_those_of_the_plan():
    """Each is given its bounds by a line of the tables above; none may be known here that is not known there."""
    text = (SHIM / "plan.cjs").read_text()
    known = set(re.findall(r"'((?:session|cuda|openvino|xnnpack)\.[a-zA-Z0-9_.]+)'", text))
    assert known == {key for key in (*numbers(), *words()) if "." in key}
