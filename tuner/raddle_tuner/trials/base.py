"""What every candidate starts from: a policy's spec as it stands, a CPU limit, a machine."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raddle.cpus.topology import Machine
from raddle.planning.capacity import Budget, is_exclusive
from raddle_operator.local.container import Container
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import Key, NodeClass
from raddle_operator.results.objective import Objective
from raddle_tuner.search.space import Case
from raddle_tuner.trials.processes import Launcher, here
from raddle_tuner.trials.programs import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """`spec` is the policy's, `cpus` limits.cpu (None: no limit), `machine` the one that the candidates work on.

    `applied` gives what a container gets under a policy of this spec. It may raise an error of its own. `place` is
    where programs are started, `allocators` those that the image has, as in Case. `whole_cpus` is as in Budget: of them
    the container has CPUs to itself where the machine's kubelet is one that gives some.
    """

    spec: Mapping[str, Any]
    cpus: float | None
    machine: Machine
    applied: Callable[[Mapping[str, Any]], Container]
    allocators: tuple[str, ...] = ()
    place: Launcher = here
    whole_cpus: int = 0

    @property
    def budget(self) -> Budget:
        """What a program may use."""
        because = "no CPU limit" if self.cpus is None else f"limits.cpu {self.cpus:g}"
        return Budget(quota_cpus=self.cpus, whole_cpus=self.whole_cpus, because=because)

    @property
    def callers(self) -> int:
        """As many as there are CPUs."""
        return max(1, math.ceil(self.cpus or len(os.sched_getaffinity(0))))

    def container(self, candidate: Candidate) -> Container:
        """What the candidate's container gets. Raises as `applied`."""
        return self.applied(candidate.over(self.spec))

    def case(self, first: Program, can: tuple[str, ...], max_inter_op: int = 1) -> Case:
        """What is searched, by what the first program says of itself; `can` is what programs take themselves.

        `max_inter_op` is how many operators can run beside each other, where the program does not say it.
        """
        said = first.said
        version = said.get("version", "") if said.get("runtime") == "onnxruntime" else ""
        return Case(
            machine=self.machine,
            budget=self.budget,
            spec=self.spec,
            onnxruntime=tuple(map(int, re.findall(r"\d+", version)[:3])) or None,
            providers=tuple(said.get("providers") or ("CPUExecutionProvider",)),
            allocators=self.allocators,
            max_inter_op=max(max_inter_op, 1 + said.get("forks", 0)),
            can=can,
        )

    def key(self, digest: str, aim: Objective, first: Program, image: str = "") -> Key:
        """What a result is valid for. `digest` is the model's, `image` the image's, as in Key."""
        return Key(
            model=digest,
            image=image,
            node_class=NodeClass.of(self.machine),
            limit_cpus=self.cpus,
            exclusive=is_exclusive(self.machine, self.budget),
            objective=aim,
            runtime=str(first.said.get("runtime", "")),
            runtime_version=str(first.said.get("version", "")),
        )
