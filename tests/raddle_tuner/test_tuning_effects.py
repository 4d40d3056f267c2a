"""What blocks say of settings: shapes that are near tell of each other, and each block of all settings that it has."""

import numpy as np
import pytest

from raddle.planning.planner import Budget
from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.effects import Effects, Observation
from raddle_tuner.search.space import Case, space

CASE = Case(budget=Budget(quota_cpus=4.0), onnxruntime=(1, 29), can=("instances", "ioBinding"))
SPACE = space(CASE)
NOISE = (1e-4, 1e-4)


@pytest.fixture
def effects():
    return Effects.of(SPACE, Candidate())


def seen(effects, worth, *, rounds=12, noise=0.01, seed=1):
    """Blocks of candidates by chance: `worth` is what one's figure is, as a logarithm."""
    rng = np.random.default_rng(seed)
    found = []
    for turn in range(rounds):
        arrivals = rng.normal(0, 0.2)
        for values in rng.random((5, len(effects.prior))):
            candidate = effects.best(values)
            losses = worth(candidate) + arrivals + rng.normal(0, noise, 2)
            found.append(Observation(candidate, turn, turn, tuple(losses)))
    return found


def test_every_shape_comes_to_something_of_its_own_and_the_baselines_is_the_first(effects):
    assert effects.shapes[0] == Candidate()
    assert len({CASE.key(shape) for shape in effects.shapes}) == len(effects.shapes)


def test_there_are_threads_between_those_of_the_space_and_never_more_than_its_most(effects):
    threads = {CASE.planned(shape)[1].intra_op for shape in effects.shapes}
    assert {1, 2, 3, 4, 5, 6, 7, 8} == threads
    narrowed = Effects.of(space(CASE, {"threads.intraOp": [2, 4]}), Candidate())
    alone = [shape for shape in narrowed.shapes if not shape.get("program.instances")]
    assert {CASE.planned(shape)[1].intra_op for shape in alone} == {2, 4}


def test_what_a_setting_does_is_known_though_it_was_never_alone(effects):
    fit = effects.fitted(seen(effects, lambda one: -0.04 * (one.get("program.ioBinding") is True)), NOISE)
    assert fit.best().get("program.ioBinding") is True
    axis = SPACE.axis("program.ioBinding")
    mean, deviation = fit.difference(effects.parts[fit.best()], effects.without(fit.best(), axis, CASE))
    assert mean == pytest.approx(-0.04, abs=4 * deviation)
    assert 0 < deviation < 0.02


def test_where_nothing_matters_the_baseline_is_the_best(effects):
    assert effects.fitted(seen(effects, lambda one: 0.0, noise=0.0001), (1e-6, 1e-6)).best() == Candidate()


def test_a_shape_is_expected_to_be_like_those_beside_it(effects):
    def threads(candidate):
        return CASE.planned(candidate)[1].intra_op

    blocks = seen(effects, lambda one: 0.1 * threads(one), rounds=20)
    fit = effects.fitted([one for one in blocks if threads(one.candidate) != 3], NOISE)
    alone = (effects.keys[CASE.key(Candidate.of({"threads.intraOp": count}))] for count in (2, 3, 4))
    two, three, four = (fit.loss(effects.alone(shape)) for shape in alone)
    assert two < three < four


def test_parts_that_are_out_are_in_no_candidate(effects):
    fit = effects.fitted(seen(effects, lambda one: -0.2 * (one.get("program.ioBinding") is True)), NOISE)
    effects.out.add(effects.parts[fit.best()][-1])
    assert fit.best().get("program.ioBinding") is None
