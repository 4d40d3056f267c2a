"""The benchmark of the search: surfaces as data, played back the same by the same seed."""

import math
import re

import numpy as np
import pytest

from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from tuning import peers, picture, simulated, surface, truth

SMALL = "small-5ms-limit2"


@pytest.fixture(scope="module")
def small():
    return surface.read(surface.FOLDER / f"{SMALL}.json")


def test_the_committed_surfaces_are_what_the_model_writes(tmp_path):
    simulated.write({SMALL: simulated.SITES[SMALL]}, tmp_path)
    assert (tmp_path / f"{SMALL}.json").read_text() == (surface.FOLDER / f"{SMALL}.json").read_text()
    assert {path.stem for path in surface.FOLDER.glob("*.json")} >= set(simulated.SITES) - {SMALL}


def test_every_surface_can_be_searched():
    for one in surface.all_surfaces():
        player = surface.Player(one, surface.Noise(), 1)
        assert isinstance(player.block(Candidate(), 2.0, 1), Block)
        assert one.space().size > 100


def test_the_same_seed_plays_the_same(small):
    first, second = (peers.searched(small, surface.Player(small, surface.Noise(), 3)) for _ in range(2))
    assert first == second


def test_equal_seeds_of_asks_have_the_same_arrivals(small):
    player = surface.Player(small, surface.Noise(), 1)
    blocks = [player.block(Candidate(), 2.0, seed) for seed in (1, 1, 2)]
    assert len(blocks[0].latencies_ms) == len(blocks[1].latencies_ms)
    assert blocks[0].latencies_ms != blocks[1].latencies_ms
    assert len(blocks[2].latencies_ms) != len(blocks[0].latencies_ms)


def test_requests_that_meet_wait_for_each_other():
    times = np.array([0.0, 1.0, 10.0]), np.array([4.0, 4.0, 4.0])
    assert surface._queued(*times, 1) == pytest.approx([4.0, 7.0, 4.0])
    assert surface._queued(*times, 2) == pytest.approx([4.0, 4.0, 4.0])


def test_times_between_thread_counts_lie_between_theirs(small):
    two, three, four = (small.times(Candidate.of({"threads.intraOp": count}))[0].open_ms[3] for count in (2, 3, 4))
    assert two > three > four


def test_what_a_surface_does_not_have_fails(small):
    player = surface.Player(small, surface.Noise(), 1)
    ask = MeasurementRequest(candidate=Candidate.of({"threads.intraOp": 100}), rate=None, seconds=1.0, seed=1, phase="")
    assert isinstance(player.measure(ask), Failure)


def test_nothing_is_better_than_the_best(small):
    known = truth.Truth(small)
    assert known.regret(known.best) == 0
    assert all(
        known.regret(choice) >= 0
        for axis in small.space().axes
        for _, choice in axis.choices
        if known.cost(choice) < math.inf
    )


def test_a_picture_of_a_search_has_a_mark_for_each_block_and_names_its_phases():
    dots, result = picture.searched(surface.read(picture.SURFACE), seed=1)
    assert [dot.minutes for dot in dots] == sorted(dot.minutes for dot in dots)
    drawn = picture.drawn(dots, result)
    # A mark for each block and one in the legend for each of the three names.
    assert len(re.findall('<use [^>]*class="fill-(?:other|plan|winner) stroke-page"', drawn)) == len(dots) + 3
    for words in ("A/A", "search", "proof", "the plan", "the winner", "other candidates"):
        assert f">{words}</text>" in drawn
        assert f">{words}</text>" in picture.FILE.read_text()
