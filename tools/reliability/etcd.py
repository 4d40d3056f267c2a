"""etcd of a local cluster as its administrator meets it: snapshots, their restore, and compaction.

etcdctl and etcdutl are built once from etcd's own modules, as the control plane is; they reach etcd by its socket.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from cluster import Cluster, DevclusterError, binaries, build, flags
from cluster.progress import Progress
from cluster.versions import Version

VERSION = Version(3, 6, 4)
DATA = "etcd"


class Etcd:
    """The commands on one cluster's etcd."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        """Find or build the tools."""
        program = build.Program(
            name="etcdtools",
            version=VERSION,
            modules=("go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"),
            commands=("etcdctl", "etcdutl"),
            source=binaries.SOURCES / "etcdtools",
        )
        self._tools = binaries.find(program, program.commands, progress)
        self._folder = cluster.directory

    def revision(self) -> int:
        """Return the store's present revision, which resource versions are."""
        status = json.loads(self._etcdctl("endpoint", "status", "--write-out=json"))
        return int(status[0]["Status"]["header"]["revision"])

    def snapshot(self) -> Path:
        """Save a snapshot of the running etcd; return its file."""
        file = self._folder / "snapshot.db"
        file.unlink(missing_ok=True)
        self._etcdctl("snapshot", "save", str(file))
        return file

    def compact(self) -> int:
        """Forget all revisions before the present one, which is returned."""
        present = self.revision()
        self._etcdctl("compact", "--physical", str(present))
        return present

    def restore(self, snapshot: Path) -> None:
        """Make the data directory again from a snapshot; etcd must be stopped."""
        shutil.rmtree(self._folder / DATA)
        self._run(
            "etcdutl", "snapshot", "restore", str(snapshot), f"--data-dir={DATA}",
            f"--initial-cluster=default={flags.ETCD_PEERS}", f"--initial-advertise-peer-urls={flags.ETCD_PEERS}",
        )  # fmt: skip

    def _etcdctl(self, *arguments: str) -> str:
        return self._run("etcdctl", f"--endpoints={flags.ETCD_CLIENTS}", *arguments)

    def _run(self, tool: str, *arguments: str) -> str:
        command = [str(self._tools[tool]), *arguments]
        # The socket's name is relative to the cluster's directory.
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self._folder)
        if done.returncode:
            raise DevclusterError(f"{tool} {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout
