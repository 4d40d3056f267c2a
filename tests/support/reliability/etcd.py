"""etcd of a local cluster as its administrator meets it: snapshots, their restore, and compaction.

etcdctl and etcdutl are built once from etcd's own modules, as the control plane is; they reach etcd by its socket.
"""

import json
import shutil
import subprocess

from cluster import binaries, build, flags
from cluster.progress import Progress
from cluster.versions import Version

VERSION = Version(3, 6, 4)
COMMANDS = ("etcdctl", "etcdutl")
DATA = "etcd"


class Etcd:
    """The commands on one cluster's etcd."""

    def __init__(self, cluster):
        program = build.Program(
            name="etcdtools",
            version=VERSION,
            modules=("go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"),
            commands=COMMANDS,
            source=binaries.SOURCES / "etcdtools",
        )
        self._tools = binaries.find(program, COMMANDS, Progress())
        self._folder = cluster.directory

    def revision(self):
        """The store's present revision, which resource versions are."""
        status = json.loads(self._etcdctl("endpoint", "status", "--write-out=json"))
        return status[0]["Status"]["header"]["revision"]

    def snapshot(self):
        """Save a snapshot of the running etcd; return its file."""
        file = self._folder / "snapshot.db"
        self._etcdctl("snapshot", "save", str(file))
        return file

    def compact(self):
        """Forget all revisions before the present one."""
        self._etcdctl("compact", "--physical", str(self.revision()))

    def restore(self, snapshot):
        """Make the data directory again from a snapshot; etcd must be stopped."""
        shutil.rmtree(self._folder / DATA)
        self._run(
            "etcdutl", "snapshot", "restore", str(snapshot), f"--data-dir={DATA}",
            f"--initial-cluster=default={flags.ETCD_PEERS}", f"--initial-advertise-peer-urls={flags.ETCD_PEERS}",
        )  # fmt: skip

    def _etcdctl(self, *arguments):
        return self._run("etcdctl", f"--endpoints={flags.ETCD_CLIENTS}", *arguments)

    def _run(self, tool, *arguments):
        # The socket's name is relative to the cluster's directory.
        command = [self._tools[tool], *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self._folder)
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout
