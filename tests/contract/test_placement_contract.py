"""Python and the native shim place a container's threads alike: on any machine that a plan tells of, any set of it, any wish.

The machines are the recorded ones, made-up ones with every oddity, and what no plan should tell of. The native parts run
under the sanitizers.
"""

import random

import pytest
from support.placement.random_machines import machine as made_up

import machines
from raddle import env, keys
from raddle.adapters.onnxruntime import affinity
from raddle.cpus import cpuset, machine_part, places
from raddle.machine.sysfs import read_machine
from raddle.process import current, resolution

SEED = 20261123


# --- what is asked, and what Python says ----------------------------------------------------------------------------


def random_set(rng, online):
    """Some of the machine's CPUs: all, a run, whole halves, any."""
    first, size = rng.randrange(len(online)), rng.randint(1, len(online))
    return rng.choice([
        online,
        online[first : first + size],
        online[:: rng.choice([2, 3])],
        online[len(online) // 2 :],
        rng.sample(online, size),
    ])  # fmt: skip


def random_fields(rng, size):
    """The plan of a container that has so many exclusive CPUs."""
    fields = {"exclusive_cpus": size, "affinity": rng.choice(["numa", "core"]), "spinning": "bounded"}
    for key, words in (("numa", keys.WORDS["numa"]), ("core_type", keys.WORDS["core_type"])):
        if rng.random() < 0.4:
            fields[key] = rng.choice(words)
    for key in ("smt", "gpu"):
        if rng.random() < 0.4:
            fields[key] = rng.randint(0, 1)
    fields["intra_op"] = rng.randint(1, size)
    fields["min_intra_op"] = rng.choice([1, 1, 2, size])
    return fields


class Case:
    """One container with these CPUs, whose plan tells this of the machine."""

    def __init__(self, rng, told, cpus):
        self.cpus = cpus
        size = cpuset.count(cpus)
        self.fields = {**random_fields(rng, size), **told}
        self.owner = rng.choice(["", "", "", "DRA CPU claim"])
        if self.owner:
            # Who says it is believed, however many the plan expects.
            self.fields["exclusive_cpus"] = rng.choice([0, size + 1])
        self.placed = current.place(self.fields, cpus, self.owner)
        threads = self.placed.threads if self.placed else 2
        self.count = rng.choice([1, 2, threads, threads, size, size + 1, rng.randint(1, size)])
        self.quota = rng.choice([None, None, size, size / 2, 1.5])

    def line(self):
        quota = "" if self.quota is None else self.quota
        parts = (env.encode(self.fields), cpuset.format_list(self.cpus), self.count, quota, self.owner)
        return "\t".join(map(str, parts))

    def answer(self):
        found = resolution.resolve(
            self.fields, current.Facts(self.cpus, self.quota, placed=self.placed, owner=self.owner)
        )
        reasons = [found.because.get("intraOp", ""), found.because.get("spinning", "")]
        room = [self.placed.threads, self.placed.because] if self.placed else [0, ""]
        workers = places.groups(self.fields, self.cpus, self.count, self.fields["affinity"])
        return "|".join(
            map(str, [*room, found.intra_op, found.spinning, *reasons, ";".join(map(cpuset.format_list, workers))])
        )


def cases_on(rng, machine, count):
    told = next(machine_part.fields_of(machine, gpu=True))
    return [Case(rng, told, cpuset.of(random_set(rng, cpuset.ids(machine.online)))) for _ in range(count)]


def same(ask, cases):
    """Each case is answered as Python answers it: the count and why, what it comes to, and the workers' CPUs."""
    for case, found in zip(cases, ask([case.line() for case in cases], "--place"), strict=True):
        assert found == case.answer(), case.line()


@pytest.mark.parametrize("name", machines.names())
def test_a_pool_is_placed_on_a_recorded_machine_as_python_does(name, answers):
    same(answers, cases_on(random.Random(SEED), read_machine(str(machines.path(name))), 25))


def test_a_pool_is_placed_on_any_machine_as_python_does(answers):
    rng = random.Random(SEED)
    cases = [case for _ in range(400) for case in cases_on(rng, made_up(rng, 64), 4)]
    # They are worth something: pools are cut, kinds are told apart, and counts are above what was placed.
    words = " ".join({case.placed.because for case in cases})
    assert all(
        kind in words for kind in ("one type on one NUMA node", "faster types", "slower types", "one socket", "CPUs")
    )
    assert sum(case.placed.threads < case.count <= cpuset.count(case.cpus) for case in cases) > 60
    same(answers, cases)


def test_more_cpus_than_onnx_runtime_can_name_are_placed_too(answers):
    machine = made_up(random.Random(5), 4096)
    while machine.online.bit_length() < affinity.CPU_SETSIZE or cpuset.count(machine.online) > 2000:
        machine = made_up(random.Random(machine.online), 4096)
    same(answers, cases_on(random.Random(SEED), machine, 4))


# --- plans that nobody should write ---------------------------------------------------------------------------------

WHOLE = {
    "cpus": "0-15",
    "cores": "0-7|8-15",
    "nodes": "0-3,8-11|4-7,12-15",
    "sockets": "0-15",
    "l3": "0-1,8-9|2-3,10-11",
    "kinds": "0-1,8-9|2-3,10-11|4-7,12-15",
    "slow": "2",
    "isolated": "3",
    "gpu_nodes": "1",
}


def mutated(rng):
    """The lists with some of them changed: one character, a part of another, gone."""
    told = dict(WHOLE)
    for key in rng.sample(list(told), rng.randint(1, 2)):
        text = told[key]
        at = rng.randrange(len(text))
        span = rng.randint(0, 4)
        other = rng.choice(
            [*WHOLE.values(), "", "|", ",", "8191", "8192", "65536", ":1/2", "0-15:1/40000", "0000000000"]
        )
        told[key] = text[:at] + other[: rng.randint(0, 12)] + text[at + span :]
        if rng.random() < 0.5:
            del told[key]
    return told


def test_whatever_a_plan_tells_is_a_machine_for_both_or_for_neither(answers):
    rng = random.Random(SEED)
    cases = [Case(rng, mutated(rng), cpuset.of(random_set(rng, list(range(16))))) for _ in range(4000)]
    assert 1000 < sum(case.placed is not None for case in cases) < 3000
    same(answers, cases)


@pytest.mark.parametrize(("more", "is_known"), [(510, True), (511, False)])
def test_a_list_is_read_up_to_its_longest(answers, more, is_known):
    case = Case(random.Random(SEED), {"cpus": "0-15"}, 0xFFFF)
    longest = "cpus=0-15" + ",0" * more
    line = case.line().replace("cpus=0-15", longest)
    assert (len(longest) - len("cpus=") <= env.MAX_LIST_TEXT) == is_known
    case.fields = env.decode(line.partition("\t")[0])
    case.placed = current.place(case.fields, case.cpus)
    assert (case.placed is not None) == is_known
    assert answers([line], "--place") == [case.answer()]
