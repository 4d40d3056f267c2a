"""The shim image's cp: puts the shim's tree into the init container's volume, no matter who runs it."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raddle import delivery
from raddle_operator.injection.volumes import ShimDelivery

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "images"))
import stage  # noqa: E402  # a program beside the Dockerfiles

MACHINES = {"x86_64": (), "aarch64": ("qemu-aarch64-static",)}


@pytest.fixture(scope="module", params=sorted(MACHINES))
def cp(request, tmp_path_factory):
    """cp(*arguments, umask=...): one run of the program, for each architecture."""
    machine = request.param
    program = tmp_path_factory.mktemp(machine) / "cp"
    runner = () if machine == os.uname().machine else MACHINES[machine]
    if not shutil.which(runner[0] if runner else "true"):
        pytest.skip(f"{runner[0]} is not installed")
    stage.compile_copier(machine, program)

    def run(*arguments, umask=0o022, most_bytes=resource.RLIM_INFINITY):
        def limit():
            # Python ignores SIGXFSZ, and what it starts then gets EFBIG beyond the limit, as ENOSPC on a full disk.
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))

        command = [*runner, str(program), *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, umask=umask, preexec_fn=limit, restore_signals=False
        )

    run.program = program
    return run


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def shim(tmp_path):
    delivery.write(str(tmp_path / "shim"))
    return tmp_path / "shim"


def test_it_copies_the_shims_tree_by_the_webhooks_command(cp, shim, tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    assert ShimDelivery().copy_command == ("cp", "-r")
    result = cp("-r", f"{shim}/.", volume)
    assert (result.returncode, result.stderr) == (0, "")
    assert tree(volume) == tree(shim)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_any_user_can_read_what_it_copied_whatever_the_umask(cp, shim, tmp_path, umask):
    volume = tmp_path / "volume"
    volume.mkdir()
    assert cp("-r", shim, volume, umask=umask).returncode == 0
    below = list(volume.rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in below if path.is_dir()} == {0o755}
    assert {path.stat().st_mode & 0o777 for path in below if path.is_file()} == {0o644}


def test_a_second_run_replaces_the_files_and_leaves_an_open_one_as_it_was(cp, shim, tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    assert cp("-r", shim, volume).returncode == 0
    name = next(iter(tree(shim)))
    with (volume / name).open("rb") as old:
        before = old.read()
        (shim / name).write_bytes(b"another")
        assert cp("-r", shim, volume).returncode == 0
        old.seek(0)
        assert old.read() == before
    assert tree(volume) == tree(shim)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 300_000])
def test_files_of_any_size_arrive_whole(cp, tmp_path, size):
    source, volume = tmp_path / "source", tmp_path / "volume"
    source.mkdir()
    volume.mkdir()
    (source / "file").write_bytes(os.urandom(size))
    assert cp("-r", source, volume).returncode == 0
    assert tree(volume) == tree(source)


def test_a_folder_with_more_entries_than_one_read_gives_arrives_whole(cp, tmp_path):
    source, volume = tmp_path / "source", tmp_path / "volume"
    for number in range(300):
        (source / f"folder-{number}" / "below").mkdir(parents=True)
        (source / f"folder-{number}" / "below" / "file").write_text(str(number))
    volume.mkdir()
    assert cp("-r", source, volume).returncode == 0
    assert len(tree(volume)) == 300
    assert tree(volume) == tree(source)


def test_a_link_in_the_target_is_not_followed(cp, tmp_path):
    source, volume, elsewhere = tmp_path / "source", tmp_path / "volume", tmp_path / "elsewhere"
    (source / "folder").mkdir(parents=True)
    (source / "folder" / "file").write_text("ours")
    for folder in (volume, elsewhere):
        folder.mkdir()
    (volume / "folder").symlink_to(elsewhere)
    result = cp("-r", source, volume)
    assert (result.returncode, result.stderr) == (1, "cp: can't make folder\n")
    assert list(elsewhere.iterdir()) == []


def test_where_no_space_is_left_it_leaves_no_half_file_and_lets_the_pod_start(cp, tmp_path):
    source, volume = tmp_path / "source", tmp_path / "volume"
    for folder in (source, volume):
        folder.mkdir()
    (source / "file").write_bytes(bytes(200_000))
    result = cp("-r", source, volume, most_bytes=100_000)
    assert (result.returncode, result.stderr) == (0, "cp: can't write file\n")
    assert list(volume.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small volume")
@pytest.mark.parametrize("room", ["size=64k", "nr_inodes=4", "nr_inodes=3"], ids=str)
def test_on_a_full_volume_each_file_is_whole_or_not_there_and_every_process_starts(cp, shim, tmp_path, room):
    volume = tmp_path / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", room, "tmpfs", str(volume)], check=True)
    try:
        result = cp("-r", shim, volume)
        copied = tree(volume)
    finally:
        subprocess.run(["umount", str(volume)], check=True)
    assert result.returncode == 0
    assert result.stderr.startswith("cp: can't ")
    whole = tree(shim)
    assert len(copied) < len(whole)
    assert copied.items() <= whole.items()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "usage: cp -r SOURCE TARGET\n"),
        (["-r", "/"], 2, "usage: cp -r SOURCE TARGET\n"),
        (["-a", "/nowhere", "/"], 2, "usage: cp -r SOURCE TARGET\n"),
        (["-r", "/nowhere", "/tmp"], 1, "cp: can't open /nowhere\n"),
        (["-r", "/tmp", "/nowhere"], 1, "cp: can't open /nowhere\n"),
    ],
)
def test_what_it_can_not_do_it_says_and_fails(cp, arguments, status, said):
    result = cp(*arguments)
    assert (result.returncode, result.stderr) == (status, said)


def test_folders_that_lie_too_deep_are_refused_and_not_left_out(cp, tmp_path):
    source, volume = tmp_path / "source", tmp_path / "volume"
    source.joinpath(*["d"] * 40).mkdir(parents=True)
    volume.mkdir()
    result = cp("-r", source, volume)
    assert (result.returncode, result.stderr) == (1, "cp: can't go that deep\n")


def test_it_is_a_static_program_of_less_than_three_kilobytes(cp):
    assert cp.program.stat().st_size < 3072
    assert b"ld-linux" not in cp.program.read_bytes()
