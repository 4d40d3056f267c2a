"""How good the search for settings is, and how its peers do, over response surfaces: `python -m tuning`.

python -m tuning              # from benchmarks/; --quick for a tenth of the runs, --write for docs/benchmarks.md
python -m tuning simulate     # writes the surfaces that are simulated
python -m tuning record       # measures surfaces of this machine (20 minutes), goes on where it was ended
python -m tuning live         # peers on this machine for --minutes, after 7 for the surface where it isn't recorded
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

import report
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.result import Verdict
from tuning import here, live, peers, recorded, simulated
from tuning.surface import Noise, Player, Surface, all_surfaces
from tuning.truth import PAIRS, Truth, differences, flat

NEAR = 2.0
WAYS: dict[str, tuple[peers.Way, int]] = {
    "raddle": (peers.ours, 60),
    "Optuna TPE": (peers.tpe, 10),
    "Olive's grid": (peers.olive, 20),
    "exhaustive": (peers.exhaustive, 2),
}


@dataclass(slots=True)
class Seen:
    """What one way came to on one surface, run by run."""

    blocks: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)


def compared(surface: Surface, way: peers.Way, runs: int) -> Seen:
    """So many runs of one way, each with noise of its own."""
    truth, seen = Truth(surface), Seen()
    for seed in range(runs):
        player = Player(surface, Noise(), seed)
        chosen = way(surface, player)
        seen.blocks.append(player.blocks)
        seen.seconds.append(player.seconds)
        seen.regrets.append(truth.regret(chosen))
        near = seen.regrets[-1] <= NEAR
        seen.good.append(near or not truth.told_apart(chosen, Player(surface, Noise(), 10_000 + seed)))
    return seen


def against_peers(surfaces: Sequence[Surface], part: float) -> str:
    """The table of all ways on all surfaces, and the sums."""
    rows, all_seen = [], {name: list[Seen]() for name in WAYS}
    for surface in surfaces:
        for name, (way, runs) in WAYS.items():
            if name == "exhaustive" and surface.space().size > peers.MOST:
                rows.append([surface.name, name, f"{surface.space().size} candidates", "", "", "", "not played"])
                continue
            seen = compared(surface, way, max(2, round(part * runs)))
            all_seen[name].append(seen)
            rows.append([surface.name, name, *_cells([seen])])
            print(rows[-1], file=sys.stderr, flush=True)
    rows += [["**all**", name, *_cells(found)] for name, found in all_seen.items()]
    headings = (
        "surface",
        "way",
        "blocks",
        "minutes",
        "median regret %",
        "p95 regret %",
        f"within {NEAR:g} % or not told apart",
    )
    return report.markdown_table(headings, rows)


def _cells(found: Sequence[Seen]) -> list[str]:
    blocks = [count for seen in found for count in seen.blocks]
    minutes = [seconds / 60 for seen in found for seconds in seen.seconds]
    regrets = [regret for seen in found for regret in seen.regrets]
    good = [one for seen in found for one in seen.good]
    near = sum(regret <= NEAR for regret in regrets)
    return [
        report.whole(statistics.median(blocks)),
        report.short(statistics.median(minutes)),
        f"{statistics.median(regrets):.1f}",
        f"{np.quantile(regrets, 0.95):.1f}",
        f"{100 * sum(good) / len(good):.0f} % of {len(good)} ({100 * near / len(good):.0f} % within)",
    ]


def planted(surface: Surface, part: float) -> str:
    """How often a gain is said where there is none, and where one is."""
    rows = []
    runs = max(10, round(part * 100))
    for noise in (0.005, 0.01, 0.02):
        for share in (0.0, 0.03, 0.1):
            for seconds in (180.0, 600.0):
                found = []
                for seed in range(runs):
                    player = Player(flat(surface, share), Noise(block=noise), seed)
                    found.append(peers.searched(player.surface, player, seconds))
                better = sum(result.verdict is Verdict.BETTER for result in found)
                rows.append(
                    [
                        f"{100 * share:g} %",
                        f"{100 * noise:g} %",
                        f"{seconds / 60:g}",
                        report.short(statistics.median(result.noise_percent for result in found)),
                        f"{100 * better / runs:.1f} % of {runs}",
                    ]
                )
                print(rows[-1], file=sys.stderr, flush=True)
    return report.markdown_table(("planted gain", "noise of a block", "minutes", "A/A %", "called a gain"), rows)


def _wilcoxon(found: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(stats.wilcoxon(found).pvalue)


def _student(found: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(stats.ttest_1samp(found, 0).pvalue)


def _flipped(found: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], size=(2000, len(found)))
    return float((np.abs(signs @ found) >= abs(found.sum()) - 1e-12).mean())


def _bernstein(found: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The error at which the empirical Bernstein bound (Maurer & Pontil 2009) excludes 0, differences within 0.5."""
    count, mean, variance = len(found), abs(found.mean()), found.var(ddof=1)
    errors = np.geomspace(1e-9, 1, 200)
    logs = np.log(2 / errors)
    radius = np.sqrt(2 * variance * logs / count) + 7 * 1.0 * logs / (3 * (count - 1))
    excluded = errors[radius < mean]
    return float(2 * excluded[0]) if len(excluded) else 1.0


TESTS: dict[str, Callable[[np.ndarray[tuple[int], np.dtype[np.float64]]], float]] = {
    "Student's t on logarithms": _student,
    "Wilcoxon signed-rank": _wilcoxon,
    "sign flips of the mean": _flipped,
    "empirical Bernstein": _bernstein,
}


def tests(surface: Surface, part: float) -> str:
    """How often each test says "gain" in four looks with the error divided among them."""
    looks, runs = (6, 12, 18, 24), max(20, round(part * 300))
    rows = {name: [name] for name in TESTS}
    for share in (0.0, 0.03, 0.06, 0.1):
        called = dict.fromkeys(TESTS, 0)
        for seed in range(runs):
            player = Player(flat(surface, share), Noise(), seed)
            found = differences(player.surface, Candidate.of({"program.ioBinding": True}), player, looks[-1])
            for name, test in TESTS.items():
                called[name] += any(
                    found[:look].mean() < 0 and test(found[:look]) < 0.05 / len(looks) for look in looks
                )
        for name, count in called.items():
            rows[name].append(f"{100 * count / runs:.1f} %")
    return report.markdown_table(("test", "A/A", "3 %", "6 %", "10 %"), list(rows.values()))


FIGURES: dict[str, Callable[[np.ndarray[tuple[int], np.dtype[np.float64]]], float]] = {
    "median": lambda found: float(np.median(found)),
    "mean": lambda found: float(found.mean()),
    "mean of the slowest fifth": lambda found: float(found[-max(1, len(found) // 5) :].mean()),
    "mean of the slowest tenth": lambda found: float(found[-max(1, len(found) // 10) :].mean()),
    "mean of the slowest twentieth": lambda found: float(found[-max(1, len(found) // 20) :].mean()),
    "p99": lambda found: float(np.quantile(found, 0.99, method="inverted_cdf")),
}
# Candidates whose p99 differ by less than this need not be told apart.
APART = 0.05


def figures(surfaces: Sequence[Surface], part: float) -> str:
    """How far each figure of two blocks of the plan differs, and how often it ranks candidates as p99 does."""
    rows = []
    latency = [surface for surface in surfaces if surface.objective.rate]
    pairs = max(20, round(part * 200))
    for name, figure in FIGURES.items():
        spreads: dict[bool, list[float]] = {True: [], False: []}
        alike = []
        for surface in latency:
            player = Player(surface, Noise(neighbour=0.0), 1)
            seconds = peers.block_s(surface)
            for same, found in spreads.items():
                values = []
                for pair in range(pairs):
                    seeds = (2 * pair, 2 * pair + (not same))
                    blocks = [player.block(Candidate(), seconds, seed) for seed in seeds]
                    one, other = (figure(np.sort(block.latencies_ms)) for block in blocks)
                    values.append(np.log(one / other))
                found.append(100 * float(np.std(values)))
            alike += _alike(surface, figure)
        rows.append(
            [
                name,
                f"{statistics.median(spreads[True]):.1f}",
                f"{statistics.median(spreads[False]):.1f}",
                f"{100 * sum(alike) / len(alike):.1f} % of {len(alike)}",
            ]
        )
    headings = ("figure of a block", "same arrivals, %", "other arrivals, %", "ranks two candidates as p99 does")
    return report.markdown_table(headings, rows)


def _alike(surface: Surface, figure: Callable[[np.ndarray[tuple[int], np.dtype[np.float64]]], float]) -> list[bool]:
    """For all pairs of one-setting candidates whose true p99 differ: whether this figure differs as they do."""
    player = Player(surface, Noise(0.0, 0.0, neighbour=0.0), 1)
    choices = [choice for axis in surface.space().axes for _, choice in axis.choices if surface.times(choice)]
    rate = surface.objective.rate or 1.0
    found = []
    for choice in choices:
        latencies = np.sort(player.block(choice, 4000 / rate, 1).latencies_ms)
        found.append((FIGURES["p99"](latencies), figure(latencies)))
    return [
        (one[0] < other[0]) == (one[1] < other[1])
        for number, one in enumerate(found)
        for other in found[:number]
        if abs(np.log(one[0] / other[0])) > APART
    ]


def section(part: float) -> str:
    """The section of docs/benchmarks.md."""
    surfaces = all_surfaces()
    small = next(surface for surface in surfaces if surface.name == "small-5ms-limit2")
    noise = Noise()
    return f"""## Tuning: the search and its peers over response surfaces

`python -m tuning`, from benchmarks/. {report.machine()}.
Surfaces of machines of 4 to 128 cores, from a model of a pool (`python -m tuning simulate`), with noise: a machine
drifts by {100 * noise.drift:g} %, blocks differ by {100 * noise.block:g} % besides, and a neighbour is in
{100 * noise.neighbour:g} % of them. A block has about 100 requests. Raddle and TPE have {peers.SECONDS / 60:g} minutes
where a block lasts 2 s, as many blocks where it lasts longer. Regret is how much worse the chosen one is without noise
than the best of all shapes of the surface with the best of each other setting. Not told apart: {PAIRS} fresh pairs do
not show that the best is better.

{against_peers(surfaces, part)}
What the search says on the surface `{small.name}` made flat, with IO binding faster by the planted gain:

{planted(small, part)}
Tests that could end the proof, on pairs of blocks of that surface: how often each says "a gain" in four looks at up to
24 pairs, the error of 5 % divided among the looks:

{tests(small, part)}
Figures that could be compared: the standard deviation between two blocks of the plan, and agreement with p99:

{figures(surfaces, part)}"""


def main() -> None:
    """Measure and print."""
    parser = report.options(__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("simulate", "record", "live", "peers", "planted", "tests", "figures")
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument(
        "--only", default="", help="surfaces whose names have this in them; models for `record` and `live`"
    )
    parser.add_argument("--minutes", type=float, default=15.0, help="of `live`, divided among its models")
    arguments = parser.parse_args()
    if arguments.what in ("record", "live"):
        names = [name for name in here.SITES if arguments.only in name]
        if not names:
            parser.error(f"--only {arguments.only}: no such model; there are {', '.join(here.SITES)}")
        if arguments.what == "record":
            recorded.main(names, quick=arguments.quick)
            return
        names = names if arguments.only else names[:1]
        minutes = 1.5 if arguments.quick else arguments.minutes
        report.publish("tuning-live", live.section(names, minutes, quick=arguments.quick), write=arguments.write)
        return
    part = 0.1 if arguments.quick else 1.0
    if arguments.what == "simulate":
        simulated.write(simulated.SITES)
        return
    surfaces = [surface for surface in all_surfaces() if arguments.only in surface.name]
    if arguments.what == "peers":
        print(against_peers(surfaces, part))
    elif arguments.what == "planted":
        print(planted(surfaces[0], part))
    elif arguments.what == "figures":
        print(figures(surfaces, part))
    elif arguments.what == "tests":
        print(tests(surfaces[0], part))
    else:
        report.publish("tuning", section(part), write=arguments.write)


if __name__ == "__main__":
    main()
