"""The real controller and webhook processes with 10,000 pods, 1,000 nodes and 200 policies: `python -m scale`.

Fills a local cluster through its API (some minutes, with progress), then measures starts, the time from a policy's
change to the right status of every policy, a rollout, and what both processes cost while nothing happens.

    python -m scale            # from benchmarks/; --quick for a tenth of everything, --write for docs/benchmarks.md
    python -m scale --agents   # 5,000 nodes' agents and 150,000 pods
"""

from __future__ import annotations

import report
from scale import agents, phases
from scale.objects import Size
from scale.text import section

QUICK = phases.Plan(
    size=Size(pods=1_000, nodes=100, policies=20), starts=2, repetitions=1, rollout_pods=100, settle_s=2.0, idle_s=10.0
)


def main() -> None:
    """Measure and print. A budget that is missed is a figure to explain, not a failure."""
    parser = report.options(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: shows that it works")
    parser.add_argument("--agents", action="store_true", help="what agents say, in a very large cluster")
    arguments = parser.parse_args()
    if arguments.agents:
        large = agents.QUICK if arguments.quick else agents.Plan()
        report.publish("agents", agents.section(large, agents.run(large)), write=arguments.write)
        return
    plan = QUICK if arguments.quick else phases.Plan()
    report.publish("scale", section(plan, phases.run(plan)), write=arguments.write)


if __name__ == "__main__":
    main()
