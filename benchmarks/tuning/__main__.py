"""How good the search for settings is, and how its peers do, over response surfaces: `python -m tuning`.

python -m tuning              # from benchmarks/; --quick for a tenth of the runs, --write for docs/benchmarks.md
python -m tuning held-out     # the same over surfaces that chance draws
python -m tuning simulate     # writes the surfaces that are simulated
python -m tuning record       # measures surfaces of this machine (20 minutes), goes on where it was ended
python -m tuning picture      # draws one search over a surface into docs/images/tuning
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
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.verdict import Verdict
from tuning import here, live, peers, picture, recorded, simulated
from tuning.surface import Noise, Player, Surface, all_surfaces, of_document
from tuning.truth import Truth, differences, flat

NEAR = 2.0
WAYS: dict[str, tuple[peers.Way, int]] = {
    "Raddle": (peers.ours, 40),
    f"Raddle, {peers.LONGER / 60:g} minutes": (peers.longer, 10),
    "Optuna TPE": (peers.tpe, 5),
    "by chance": (peers.by_chance, 10),
    "Olive's grid": (peers.olive, 5),
    "exhaustive": (peers.exhaustive, 2),
}
# Seeds of the surfaces that are drawn for the figures only.
HELD_OUT = range(2001, 2011)
# Where planted gains are looked for: the noisiest and a usual one.
PLANTED = ("small-5ms-limit2", "large-64-cores")
BUDGETS_S = (180.0, 600.0, 1200.0)


@dataclass(slots=True)
class Observation:
    """What one way came to, run by run; `visible` is the surface's."""

    blocks: list[int] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)

    def add(self, other: Observation) -> None:
        """The other's runs too."""
        for name in ("blocks", "trials", "seconds", "regrets", "visible"):
            getattr(self, name).extend(getattr(other, name))

    @property
    def near(self) -> float:
        """The share of runs within 2 %."""
        return sum(regret <= NEAR for regret in self.regrets) / len(self.regrets)

    @property
    def good(self) -> float:
        """The share of runs within 2 % or within what can be shown at all."""
        pairs = zip(self.regrets, self.visible, strict=True)
        return sum(regret <= max(NEAR, visible) for regret, visible in pairs) / len(self.regrets)

    def spread(self) -> str:
        """Median, 95th percentile and maximum of the regrets."""
        # Between two runs of which one broke the bound there is no number.
        late = np.quantile(self.regrets, 0.95, method="inverted_cdf")
        values = (statistics.median_low(self.regrets), late, max(self.regrets))
        return " / ".join("breaks the bound" if value == np.inf else f"{value:.1f}" for value in values)


def compared(surface: Surface, truth: Truth, way: peers.Way, runs: int) -> Observation:
    """So many runs of one way, each with noise of its own."""
    observed = Observation()
    for seed in range(runs):
        player = Player(surface, Noise(), seed)
        observed.regrets.append(truth.regret(way(surface, player)))
        observed.visible.append(truth.visible)
        observed.blocks.append(player.blocks)
        observed.trials.append(len(player.candidates))
        observed.seconds.append(player.seconds)
    return observed


def against_peers(surfaces: Sequence[Surface], part: float) -> str:
    """Two tables: all ways over all surfaces, and surface by surface."""
    rows, sums = [], {name: Observation() for name in WAYS}
    for surface in surfaces:
        truth, cells = Truth(surface), []
        for name, (way, runs) in WAYS.items():
            if name == "exhaustive" and surface.space().size > peers.MOST:
                cells.append("not played")
                continue
            observed = compared(surface, truth, way, max(2, round(part * runs)))
            sums[name].add(observed)
            cells.append(observed.spread() + (f"; {100 * observed.good:.0f} %" if name.startswith("Raddle") else ""))
        rows.append([surface.name, f"{surface.space().size}", f"{truth.visible:.1f}", *cells])
        print(rows[-1], file=sys.stderr, flush=True)
    headings = ("surface", "combinations", "visible, %", *WAYS)
    return (
        report.markdown_table(
            (
                "way",
                "blocks",
                "candidates",
                "minutes",
                "regret, %: median / p95 / max",
                f"within {NEAR:g} %",
                f"within {NEAR:g} % or not visible",
            ),
            [[name, *_cells(observed)] for name, observed in sums.items() if observed.regrets],
        )
        + f"\nRegrets by surface; behind Raddle's the share within {NEAR:g} % or not visible:\n\n"
        + report.markdown_table(headings, rows)
    )


def _cells(observed: Observation) -> list[str]:
    return [
        report.whole(statistics.median(observed.blocks)),
        report.whole(statistics.median(observed.trials)),
        report.short(statistics.median(observed.seconds) / 60),
        observed.spread(),
        f"{100 * observed.near:.0f} % of {len(observed.regrets)}",
        f"{100 * observed.good:.0f} %",
    ]


def _planted_runs(part: float) -> int:
    return max(12, round(part * 30))


def planted(surfaces: Sequence[Surface], part: float) -> str:
    """How often a gain is said where there is none, and where one is, by budget."""
    rows = []
    runs = _planted_runs(part)
    for surface in surfaces:
        for share in (0.0, 0.03, 0.1):
            cells = []
            for seconds in BUDGETS_S:
                results = []
                for seed in range(runs):
                    player = Player(flat(surface, share), Noise(), 5000 + seed)
                    results.append(peers.searched(player.surface, player, seconds))
                better = sum(result.verdict is Verdict.BETTER for result in results)
                cells.append(f"{100 * better / runs:.0f} %")
            noise = statistics.median(result.noise_percent for result in results)
            rows.append([surface.name, report.short(noise), f"{100 * share:g} %", *cells])
            print(rows[-1], file=sys.stderr, flush=True)
    budgets = (f"{seconds / 60:g} minutes" for seconds in BUDGETS_S)
    return report.markdown_table(("surface made flat", "A/A, %", "planted gain", *budgets), rows)


def _wilcoxon(result: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(stats.wilcoxon(result).pvalue)


def _student(result: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(stats.ttest_1samp(result, 0).pvalue)


def _flipped(result: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], size=(2000, len(result)))
    return float((np.abs(signs @ result) >= abs(result.sum()) - 1e-12).mean())


def _bernstein(result: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The error at which the empirical Bernstein bound (Maurer & Pontil 2009) excludes 0, differences within 0.5."""
    count, mean, variance = len(result), abs(result.mean()), result.var(ddof=1)
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
            result = differences(player.surface, Candidate.of({"program.ioBinding": True}), player, looks[-1])
            for name, test in TESTS.items():
                called[name] += any(
                    result[:size].mean() < 0 and test(result[:size]) < 0.05 / len(looks) for size in looks
                )
        for name, count in called.items():
            rows[name].append(f"{100 * count / runs:.1f} %")
    return report.markdown_table(("test", "A/A", "3 %", "6 %", "10 %"), list(rows.values()))


FIGURES: dict[str, Callable[[np.ndarray[tuple[int], np.dtype[np.float64]]], float]] = {
    "median": lambda samples: float(np.median(samples)),
    "mean": lambda samples: float(samples.mean()),
    "mean of the slowest fifth": lambda samples: float(samples[-max(1, len(samples) // 5) :].mean()),
    "mean of the slowest tenth": lambda samples: float(samples[-max(1, len(samples) // 10) :].mean()),
    "mean of the slowest twentieth": lambda samples: float(samples[-max(1, len(samples) // 20) :].mean()),
    "p99": lambda samples: float(np.quantile(samples, 0.99, method="inverted_cdf")),
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
            for same, item in spreads.items():
                values = []
                for pair in range(pairs):
                    seeds = (2 * pair, 2 * pair + (not same))
                    blocks = [player.block(Candidate(), seconds, seed) for seed in seeds]
                    one, other = (figure(np.sort(block.latencies_ms)) for block in blocks)
                    values.append(np.log(one / other))
                item.append(100 * float(np.std(values)))
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
    player = Player(surface, Noise(0.0, 0.0, 0.0, neighbour=0.0), 1)
    choices = [choice for axis in surface.space().axes for _, choice in axis.choices if surface.times(choice)]
    rate = surface.objective.rate or 1.0
    result = []
    for choice in choices:
        latencies = np.sort(player.block(choice, 4000 / rate, 1).latencies_ms)
        result.append((FIGURES["p99"](latencies), figure(latencies)))
    return [
        (one[0] < other[0]) == (one[1] < other[1])
        for number, one in enumerate(result)
        for other in result[:number]
        if abs(np.log(one[0] / other[0])) > APART
    ]


def held_out() -> list[Surface]:
    """Surfaces that nobody looked at while the search was made."""
    return [of_document(f"drawn-{seed}", simulated.document(simulated.drawn(seed))) for seed in HELD_OUT]


def section(part: float) -> str:
    """The section of docs/benchmarks.md."""
    surfaces = all_surfaces()
    flat_ones = [surface for surface in surfaces if surface.name in PLANTED]
    noise = Noise()
    return f"""## Tuning: the search and its peers over response surfaces

`python -m tuning`, from benchmarks/. {report.machine()}.
Surfaces of machines of 4 to 128 cores, from a model of a pool (`python -m tuning simulate`), with noise: a machine
drifts by {100 * noise.drift:g} %, starts of one program differ by {100 * noise.start:g} %, blocks by
{100 * noise.block:g} % besides, and a neighbour is in
{100 * noise.neighbour:g} % of them. A block has about 100 requests. Raddle, TPE and chance have {peers.SECONDS / 60:g}
minutes where a block lasts 2 s, as many blocks where it lasts longer; the others as many as they have candidates.
Regret is how much worse the objective's figure (p99, requests a second, CPU time) of the chosen one is, without noise,
than that of the best of all shapes of the surface with the best of each other setting. Visible is the smallest
difference that a proof with the whole budget shows in half of the cases: as many pairs as it has room for, in the
objective's figure, at 95 %.

{against_peers(surfaces, part)}
{len(HELD_OUT)} more surfaces that chance drew, seeds {HELD_OUT[0]} to {HELD_OUT[-1]}, which were not looked at while
the search was made:

{against_peers(held_out(), part)}
What the search says where no setting matters but IO binding, which is faster by the planted gain: how often "better",
{_planted_runs(part)} runs each. Minutes are those of blocks of 2 s. With no planted gain, that is the share of
false gains:

{planted(flat_ones, part)}
Tests that could end the proof, on pairs of blocks of `{flat_ones[-1].name}`: how often each says "a gain" in four looks
at up to 24 pairs, the error of 5 % divided among the looks:

{tests(flat_ones[-1], part)}
Figures that could be compared: the standard deviation between two blocks of the plan, and agreement with p99:

{figures(surfaces, part)}"""


def main() -> None:
    """Measure and print."""
    parser = report.options(__doc__)
    choices = ("simulate", "record", "live", "picture", "peers", "held-out", "planted", "tests", "figures")
    parser.add_argument("what", nargs="?", choices=choices)
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
    written = {"simulate": lambda: simulated.write(simulated.SITES), "picture": picture.main}
    if arguments.what in written:
        written[arguments.what]()
        return
    surfaces = [surface for surface in all_surfaces() if arguments.only in surface.name]
    if arguments.what == "peers":
        print(against_peers(surfaces, part))
    elif arguments.what == "held-out":
        print(against_peers(held_out(), part))
    elif arguments.what == "planted":
        print(planted([surface for surface in surfaces if surface.name in PLANTED], part))
    elif arguments.what == "figures":
        print(figures(surfaces, part))
    elif arguments.what == "tests":
        print(tests(surfaces[0], part))
    else:
        report.publish("tuning", section(part), write=arguments.write)


if __name__ == "__main__":
    main()
