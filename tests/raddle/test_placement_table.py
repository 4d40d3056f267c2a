"""docs/explanation/how-threads-are-placed.md, row by row: the planner does what the page says that an expert would set."""

import itertools
import re
from pathlib import Path

import pytest
import yaml
from support.placement.named import MACHINES

from raddle.cpus import cpuset
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import FIELDS, Policy

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "how-threads-are-placed.md").read_text()
RULES = set(re.findall(r"^- \*\*([a-z-]+)\*\*: .+\n  Sources: .+\.$", PAGE, re.MULTILINE))


def table(text):
    """The cells of a table's rows, its heading first."""
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0] != "---"]


SECTIONS = dict(part.split("\n", 1) for part in PAGE.partition("## Machines\n")[2].split("\n### ")[1:])
CASES = [(machine, *cells) for machine, text in SECTIONS.items() for cells in table(text)[1:]]
HEADING, *LIMITS = table(PAGE.partition("## Limits at a glance\n")[2].partition("\n## ")[0])


def cpus_of(text):
    return float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)


def met(machine, words):
    """The machine with the kubelet that this container meets, and its budget."""
    what, *more = words.split(", ")
    workers = next((int(one.split()[0]) for one in more if one.endswith(" workers")), 1)
    extra = {"gpu": "a GPU" in more, "workers": workers}
    manager = next((one.split()[-1] for one in more if one.startswith("CPU manager")), "static")
    options = tuple((one.strip("`"), "true") for one in more if one.startswith("`"))
    kubelet = machine.kubelet._replace(cpu_manager_policy=manager, cpu_manager_policy_options=options)
    known = re.fullmatch(r"exclusive ([\d,-]+)", what)
    whole = re.search(r"(\d+) (?:exclusive )?CPUs?\b", words)
    if known:
        cpus = cpuset.parse_list(known[1])
        budget = Budget(whole_cpus=cpuset.count(cpus), cpus=cpus, **extra)
    elif whole:
        count = int(whole[1])
        budget = Budget(quota_cpus=count, request_cpus=count, whole_cpus=count, because=f"limits.cpu {count}", **extra)
    elif what == "no limit":
        budget = Budget(**extra)
    else:
        limit = cpus_of(what.removeprefix("limit "))
        budget = Budget(quota_cpus=limit, because=f"limits.cpu {limit:g}", **extra)
    return machine._replace(kubelet=kubelet), budget


def asked(cell):
    """The policy: fields by the end of their place in the spec."""
    found = {}
    for part in filter(None, cell.split(", ")):
        end, _, text = part.strip("`").rpartition(": ")
        end = end or "objective"
        [(name, field)] = [
            (name, row) for name, row in FIELDS.items() if row.path == end or row.path.endswith("." + end)
        ]
        found[name] = field.read(field.path, yaml.safe_load(text), field.allowed)
    return Policy(**found)


def counted(groups):
    """Equal neighbours as one: ("0-3", "0-3", "4") -> "0-3 ×2; 4"."""
    runs = [(group, len(list(run))) for group, run in itertools.groupby(groups)]
    return "; ".join(group if times == 1 else f"{group} ×{times}" for group, times in runs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:3]).replace(" ", "-"))
def test_the_plan_is_what_an_expert_would_set(case):
    machine, container, policy, *expected, why = case
    made = plan(*met(MACHINES[machine], container), asked(policy))
    kinds = ((made.layout.workers, made.layout.threads), *made.layout.others) if made.layout else ()
    tied = "" if made.affinity == "none" else made.affinity
    groups = counted(cpuset.format_list(group) for group in made.affinity_groups)
    assert [
        str(made.intra_op),
        made.spinning,
        "" if made.cpus is None else cpuset.format_list(made.cpus),
        f"{tied}: {groups}" if groups else tied,
        "" if made.memory_numa_node is None else str(made.memory_numa_node),
        " + ".join(f"{workers} × {threads}" for workers, threads in kinds),
    ] == expected, why


@pytest.mark.parametrize("objective", ["Latency", "Throughput"])
@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row[0].replace(" ", "-"))
def test_a_limit_gives_the_threads_of_the_table_and_spins_from_one_cpu_on(row, objective):
    machine, *cells = row
    for heading, cell in zip(HEADING[1:], cells, strict=True):
        threads, own = re.fullmatch(r"([\d /]+?)(?: \((.+)\))?", cell).groups()
        cpus = cpus_of(own or heading)
        budget = Budget(quota_cpus=cpus, because="limit")
        made = plan(MACHINES[machine], budget, Policy(objective=objective))
        assert made.intra_op == int(threads.split(" / ")[-1 if objective == "Throughput" else 0]), heading
        assert made.spinning == ("never" if cpus < 1 else "bounded"), heading


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:3]).replace(" ", "-"))
def test_every_row_gives_a_reason_and_the_rules_behind_it(case):
    assert set(re.fullmatch(r".+\. \((.+)\)", case[-1])[1].split(", ")) <= RULES


def test_no_row_is_there_twice_and_every_machine_and_rule_has_one():
    assert len({case[:3] for case in CASES}) == len(CASES) > len(MACHINES)
    assert set(SECTIONS) == {row[0] for row in LIMITS} == set(MACHINES)
    assert {rule for case in CASES for rule in case[-1].rpartition("(")[2][:-1].split(", ")} == RULES
