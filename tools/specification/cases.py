"""The placement table: machine, container and policy, and what an expert would set there and why.

Every number is worked out by hand from `rules`; none is copied from the planner. A case knows only values, so that the
page for readers and the test are made from the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy, to_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What the container has, in words and as a budget; `options` are the static CPU manager's on this node."""

    words: str
    budget: Budget
    options: tuple[str, ...] = ()
    cpu_manager_policy: str = "static"

    def on(self, machine: Machine) -> Machine:
        """The machine with the kubelet that this container meets."""
        options = tuple((option, "true") for option in self.options)
        kubelet = machine.kubelet._replace(
            cpu_manager_policy=self.cpu_manager_policy, cpu_manager_policy_options=options
        )
        return machine._replace(kubelet=kubelet)

    def workers(self, count: int) -> Container:
        """The same with that many processes."""
        return replace(self, words=f"{self.words}, {count} workers", budget=self.budget._replace(workers=count))

    def under(self, cpu_manager_policy: str) -> Container:
        """The same on a node whose CPU manager's policy is another one."""
        words = f"Guaranteed, {self.budget.whole_cpus} CPUs, CPU manager {cpu_manager_policy}"
        return replace(self, words=words, cpu_manager_policy=cpu_manager_policy)

    def gpu(self) -> Container:
        """The same with a GPU."""
        return replace(self, words=f"{self.words}, a GPU", budget=self.budget._replace(gpu=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row. `threads` is the intra-op pool's size; `groups` a CPU list per worker.

    `pool` is a CPU list, `layout` instances × threads; both "" where the plan has none.
    """

    machine: str
    container: Container
    policy: Policy
    threads: int
    spinning: str
    tied: str
    pool: str
    groups: tuple[str, ...]
    memory_node: int | None
    layout: str
    why: str
    rules: tuple[str, ...]

    def name(self) -> str:
        """For a test's id."""
        return " ".join([self.machine, self.container.words, *self.asked().values()]).replace(" ", "-")

    def asked(self) -> dict[str, str]:
        """The policy's fields that differ from their defaults."""
        return {name: str(value) for name, value in to_settings(self.policy).items()}


FREE = Container(words="no limit", budget=Budget())


def limit(cpus: float) -> Container:
    """Shared CPUs under a limit."""
    words = f"limit {cpus:g}" if cpus >= 1 and cpus == int(cpus) else f"limit {cpus * 1000:.0f}m"
    return Container(words=words, budget=Budget(quota_cpus=cpus, because=f"limits.cpu {cpus:g}"))


def exclusive(cpus: int, *options: str) -> Container:
    """A Guaranteed container of whole CPUs on a static node, before its CPUs are known."""
    words = f"{cpus} exclusive CPU{'s' * (cpus != 1)}" + "".join(f", `{option}`" for option in options)
    return Container(
        words=words,
        budget=Budget(quota_cpus=cpus, request_cpus=cpus, whole_cpus=cpus, because=f"limits.cpu {cpus}"),
        options=options,
    )


def on(cpus: str) -> Container:
    """The same in the container, where they are known."""
    mask = cpuset.parse_list(cpus)
    whole = cpuset.count(mask)
    return Container(words=f"exclusive {cpus}", budget=Budget(whole_cpus=whole, cpus=mask))


@dataclass(slots=True)
class Table:
    """Collects the cases."""

    rows: list[Case] = field(default_factory=list)

    def of(self, machine: str) -> Row:
        """What adds a row for that machine."""
        return Row(table=self, machine=machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Adds rows of one machine. Keywords that a case does not have are the policy's."""

    table: Table
    machine: str

    def __call__(
        self,
        container: Container,
        threads: int,
        why: str,
        *rules: str,
        spinning: str = "bounded",
        tied: str = "none",
        pool: str = "",
        groups: str = "",
        memory: int | None = None,
        layout: str = "",
        **policy: Any,
    ) -> None:
        """`groups` is "LIST xN; LIST": a CPU list per worker, or for N workers."""
        self.table.rows.append(
            Case(
                machine=self.machine,
                container=container,
                policy=Policy(**policy),
                threads=threads,
                spinning=spinning,
                tied=tied,
                pool=pool,
                groups=expanded(groups),
                memory_node=memory,
                layout=layout,
                why=why,
                rules=rules,
            )
        )


def expanded(text: str) -> tuple[str, ...]:
    """One list per worker: "0-3 x2; 4" -> ("0-3", "0-3", "4")."""
    found: list[str] = []
    for part in filter(None, text.split("; ")):
        cpus, _, times = part.partition(" x")
        found += [cpus] * int(times or 1)
    return tuple(found)
