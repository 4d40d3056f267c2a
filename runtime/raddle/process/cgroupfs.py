"""Where a process's cgroups can be seen: /proc tells its path in each hierarchy and the mounts that show a part of it.

A container usually sees its own cgroup only, as the root of the mount; what lies above is out of sight. Under a host's
cgroup namespace, or through a mount made outside, ancestors can be seen too, and all mounts of a hierarchy count
together. Files: proc_pid_cgroup(5), proc_pid_mountinfo(5), cgroup_namespaces(7).

A tree that another tool recorded may lack /proc/PID/mountinfo or /proc/PID/cgroup. Then the first of these that there
is stands in: /proc/PID/mounts, /proc/mounts, and the usual places below /sys/fs/cgroup and /cgroup, each taken as a
mount of the hierarchy's root; and for the path /proc/PID/cpuset, else the mount's top, whose limits hold for all below.

Imports nothing but `os` and one small module: the shim reads this in users' processes.
"""

from __future__ import annotations

import os

from raddle import files

# A host may have thousands of mounts.
_MOUNTS_LIMIT_BYTES = 4 * 1024 * 1024

# Folders of the hierarchies that have the controller; "" is the unified one of version 2.
_USUAL_NAMES = {
    "": ("/unified", ""),
    "cpu": ("/cpu", "/cpu,cpuacct", "/cpuacct,cpu"),
    "cpuacct": ("/cpuacct", "/cpu,cpuacct", "/cpuacct,cpu"),
    "cpuset": ("/cpuset",),
    "memory": ("/memory",),
}


class View:
    """The cgroups of one process by the files below a root."""

    __slots__ = ("_guessed", "_knows_own", "_mounts", "_own", "_root")

    def __init__(self, root: str, process: str) -> None:
        """`process`: its /proc folder, as process_folder gives it."""
        self._root = root.rstrip("/")
        mountinfo = read(process + "/mountinfo", _MOUNTS_LIMIT_BYTES)
        # mountinfo is complete: beside it nothing is guessed.
        self._guessed = not mountinfo
        if mountinfo:
            self._mounts = parse_mountinfo(mountinfo)
        else:
            tables = (process + "/mounts", self._root + "/proc/mounts")
            self._mounts = parse_mounts(next(filter(None, (read(path, _MOUNTS_LIMIT_BYTES) for path in tables)), ""))
        self._own = parse_own_cgroups(read(process + "/cgroup"))
        self._knows_own = bool(self._own)
        if not self._own:
            path = read(process + "/cpuset").strip() or "/"
            # Version 2 has one path for all controllers. Of version 1's the others are unknown.
            self._own = {"": path, "cpuset": path, "cpu": "/", "memory": "/"}

    def directories(self, controller: str) -> tuple[int, list[str], bool]:
        """(cgroup version that has the controller, directories, whether the first is the process's own).

        The directories are those that exist of the process's own cgroup and its ancestors, nearest first; [] where
        none can be seen.
        """
        version, result = 1, self._visible(controller)
        # Which version has the controller is known from /proc/PID/cgroup, and else by what there is.
        if controller not in self._own or not (result or self._knows_own):
            version, result = 2, self._visible("")
        own = depth_of(self._own.get(controller if version == 1 else "", "/"))
        return version, [result[depth] for depth in sorted(result, reverse=True)], self._knows_own and own in result

    def _visible(self, hierarchy: str) -> dict[int, str]:
        """Depth -> directory of the process's cgroup and its ancestors, by all mounts of the hierarchy."""
        own = self._own.get(hierarchy)
        if own is None:
            return {}
        result = self._below([(root, point) for name, root, point in self._mounts if name == hierarchy], own)
        if not result and self._guessed:
            result = self._below([("/", point) for point in usual_mount_points(hierarchy)], own)
        return result

    def _below(self, mounts: list[tuple[str, str]], own: str) -> dict[int, str]:
        result: dict[int, str] = {}
        for mount_root, mount_point in mounts:
            below = visible_path(own, mount_root)
            if below is None:
                continue
            directory, depth = self._root + "/" + mount_point.strip("/"), depth_of(mount_root)
            for name in ["", *below]:
                if name:
                    directory, depth = directory + "/" + name, depth + 1
                if depth not in result and os.path.isdir(directory):
                    result[depth] = directory
        return result


def process_folder(root: str, pid: int | str) -> str:
    """The /proc folder of a process; of the calling thread for "self" where the kernel has that (Linux 3.17).

    A thread may be in another cgroup than the rest of its process (version 1, and threaded ones of version 2), and
    have another affinity; the threads that it starts inherit both.
    """
    proc = root.rstrip("/") + "/proc/"
    return proc + "thread-self" if pid == "self" and os.path.isdir(proc + "thread-self") else proc + str(pid)


def parse_own_cgroups(text: str) -> dict[str, str]:
    """Controller -> the process's path in its hierarchy, from /proc/PID/cgroup; "" is the v2 hierarchy."""
    own: dict[str, str] = {}
    # Names may hold ":" and any character but a newline, also those that str.splitlines takes for one.
    for line in text.split("\n"):
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                own[controller] = parts[2]
    return own


def parse_mountinfo(text: str) -> list[tuple[str, str, str]]:
    """(controller, root within the hierarchy, mount point) of each cgroup mount, from /proc/PID/mountinfo.

    A v1 mount appears once per controller; the v2 mount's controller is "". A mount that another covers is left out.
    """
    shown: dict[str, list[tuple[str, str, str]]] = {}
    for line in text.split("\n"):
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if dash and len(fields) >= 5 and len(kind) >= 3:
            # The later mount is on top.
            shown[fields[4]] = _mounts_of(kind[0], kind[2], fields[3], fields[4])
    return [mount for mounts in shown.values() for mount in mounts]


def parse_mounts(text: str) -> list[tuple[str, str, str]]:
    """The same from /proc/mounts, which does not tell what part of the hierarchy a mount shows: taken as all of it."""
    shown: dict[str, list[tuple[str, str, str]]] = {}
    for line in text.split("\n"):
        fields = line.split(" ")
        if len(fields) >= 4:
            shown[fields[1]] = _mounts_of(fields[2], fields[3], "/", fields[1])
    return [mount for mounts in shown.values() for mount in mounts]


def usual_mount_points(controller: str) -> list[str]:
    """Where the controller's hierarchy of version 1 is usually mounted; the unified one for ""."""
    return [base + name for base in ("/sys/fs/cgroup", "/cgroup") for name in _USUAL_NAMES[controller]]


def _mounts_of(kind: str, options: str, root: str, point: str) -> list[tuple[str, str, str]]:
    controllers = {"cgroup2": [""], "cgroup": options.split(","), "cpuset": ["cpuset"]}.get(kind, [])
    return [(controller, _unescape(root), _unescape(point)) for controller in controllers]


def _unescape(text: str) -> str:
    """Undoes the octal escapes of fs/proc_namespace.c."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")):
        text = text.replace(escape, char)
    return text


def visible_path(own: str, mount_root: str) -> list[str] | None:
    """The process's path below the mount, as names; [] where only the mount's top is known to be above it.

    Both paths are seen from the reader's cgroup namespace, so either may climb with "..": a mount made
    outside has a root such as "/..", and a process moved out has a path such as "/../other".
    None: the mount shows another part of the hierarchy.
    """
    names, above = _names(own), _names(mount_root)
    if names[: len(above)] == above:
        below = names[len(above) :]
        return below if ".." not in below else None
    if all(name == ".." for name in above):
        # The mount starts above the namespace's root; the names in between can't be known.
        return []
    return None


def depth_of(path: str) -> int:
    """How far below the reader's namespace's root the path's cgroup is; negative above it."""
    return sum(-1 if name == ".." else 1 for name in _names(path))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def read(path: str, limit_bytes: int = files.LIMIT_BYTES) -> str:
    """The text of a file of procfs; "" where it can't be read."""
    return files.text_or_nothing(path, True, limit_bytes)
