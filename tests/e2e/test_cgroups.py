"""Control groups that a node leaves, on folders made for the test."""

import pytest

from e2e import cgroups
from e2e.errors import E2EError

MOUNTS = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
/dev/vda / ext4 rw 0 0
"""


def test_hierarchies_of_both_versions_are_found():
    assert [str(path) for path in cgroups.hierarchies(MOUNTS)] == ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"]


def test_groups_that_are_empty_are_removed_with_all_below(tmp_path):
    (tmp_path / "kubepods" / "burstable" / "pod1" / "container").mkdir(parents=True)
    cgroups.remove([tmp_path])
    assert not (tmp_path / "kubepods").exists()


def test_other_groups_stay(tmp_path):
    (tmp_path / "system").mkdir()
    cgroups.remove([tmp_path])
    assert (tmp_path / "system").is_dir()


def test_a_machine_whose_pods_run_is_refused(tmp_path):
    group = tmp_path / "kubepods" / "besteffort" / "pod1"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("17\n")
    with pytest.raises(E2EError, match="is a Kubernetes node already"):
        cgroups.refuse_another_node([tmp_path])
    assert group.is_dir()


def test_what_an_ended_run_left_is_no_reason_to_refuse(tmp_path):
    (tmp_path / "kubepods" / "besteffort").mkdir(parents=True)
    cgroups.refuse_another_node([tmp_path])
    assert not (tmp_path / "kubepods").exists()
