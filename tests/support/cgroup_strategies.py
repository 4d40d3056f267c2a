"""Random hierarchies of cgroups, as far as a process can see them, written as the kernel would write them.

What holds is known from the case itself, so a reader is held against the hierarchy and not against another reader.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from raddle.cpus import cpuset

NAMES = ("kubepods.slice", "pod-1.slice:cri-containerd:9", "a b", "box")


class Case(NamedTuple):
    """A chain of cgroups from the host's root down to the process's own, and how much of it can be seen.

    `quotas` and `cpus` from the host's root to the process's own cgroup; a quota of None is none, of 0: no file.

    namespace  depth of the cgroup namespace's root
    mounts     depth of each mount's root
    affinity   a part of the last of `cpus`
    """

    version: int
    quotas: tuple
    cpus: tuple
    memory: tuple
    namespace: int
    mounts: tuple
    affinity: int

    def seen(self):
        """Depths that can be seen: all below a mount made inside the namespace, else its top only."""
        depths = range(len(self.quotas))
        return {depth for mount in self.mounts for depth in depths if depth == mount or depth > mount >= self.namespace}

    def limits(self):
        return [self.quotas[depth] for depth in sorted(self.seen()) if self.quotas[depth]]


@st.composite
def cases(draw):
    depth = draw(st.integers(0, len(NAMES)))
    cpus, memory = [draw(st.integers(1, 255))], [None]
    for _ in range(depth):
        kept = draw(st.sets(st.sampled_from(cpuset.ids(cpus[-1])), min_size=1))
        cpus.append(cpuset.of(kept))
        memory.append(draw(st.none() | st.integers(1, 1 << 40)))
    quota = st.none() | st.just(0) | st.integers(1000, 900_000)
    quotas = [None, *draw(st.lists(quota, min_size=depth, max_size=depth))]
    return Case(
        version=draw(st.sampled_from([1, 2])),
        quotas=tuple(quotas),
        cpus=tuple(cpus),
        memory=tuple(memory),
        namespace=draw(st.integers(0, depth)),
        mounts=tuple(draw(st.lists(st.integers(0, depth), max_size=3))),
        affinity=cpuset.of(draw(st.sets(st.sampled_from(cpuset.ids(cpus[-1])), min_size=1))),
    )


def told(names, namespace):
    """The path of the cgroup with these names, from a namespace that is so many cgroups down the same chain."""
    below = names[namespace:]
    return "/" + "/".join(below if len(names) >= namespace else [".."] * (namespace - len(names)))


def write(case, root):
    """Writes the tree."""
    names = NAMES[: len(case.quotas) - 1]
    controllers = "cpu,cpuset,memory" if case.version == 1 else ""
    mountinfo, texts = "", {}
    for number, mount in enumerate(case.mounts):
        point = f"mnt/{number}"
        shown = told(names[:mount], case.namespace).replace(" ", "\\040")
        kind = f"cgroup cgroup rw,{controllers}" if controllers else "cgroup2 cgroup2 rw"
        mountinfo += f"{30 + number} 23 0:26 {shown} /{point} rw - {kind}\n"
        for depth in range(mount, len(case.quotas)):
            folder = "/".join([point, *names[mount:depth]])
            texts.update({f"{folder}/{name}": text for name, text in cgroup_files(case, depth).items()})
    texts["proc/self/cgroup"] = f"{4 if controllers else 0}:{controllers}:{told(names, case.namespace)}\n"
    texts["proc/self/mountinfo"] = mountinfo
    texts["proc/self/status"] = f"Cpus_allowed_list:\t{cpuset.format_list(case.affinity)}\n"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return sorted(texts)


def cgroup_files(case, depth):
    quota, cpus, memory = case.quotas[depth], cpuset.format_list(case.cpus[depth]), case.memory[depth]
    if case.version == 1:
        files = {"cpuset.effective_cpus": cpus, "memory.limit_in_bytes": str(memory or 9223372036854771712)}
        if quota != 0:
            files |= {"cpu.cfs_quota_us": str(quota or -1), "cpu.cfs_period_us": "100000"}
        return files
    files = {"cgroup.procs": "", "cpuset.cpus.effective": cpus, "memory.max": str(memory or "max")}
    return files if quota == 0 else {**files, "cpu.max": f"{quota or 'max'} 100000"}
