"""An image's tarball, against what the image specification says of it."""

import hashlib
import json
import tarfile

from e2e import archive

IMAGE = archive.Image(name="app:1", entrypoint=["/bin/app"], env={"PATH": "/bin"}, user="1000")


def parts(path):
    with tarfile.open(path) as whole:
        return {member.name: whole.extractfile(member).read() for member in whole}


def written(tmp_path, *contents):
    layers = []
    for number, files in enumerate(contents):
        root = tmp_path / str(number)
        root.mkdir()
        for name, text in files.items():
            (root / name).write_text(text)
        layers.append(archive.layer(root, tmp_path / f"{number}.layer"))
    archive.write(layers, IMAGE, tmp_path / "image.tar")
    return parts(tmp_path / "image.tar")


def test_the_configuration_has_each_layers_digest_in_order(tmp_path):
    found = written(tmp_path, {"a": "1"}, {"b": "2"})
    (manifest,) = json.loads(found["manifest.json"])
    digests = ["sha256:" + hashlib.sha256(found[layer]).hexdigest() for layer in manifest["Layers"]]
    assert json.loads(found[manifest["Config"]])["rootfs"]["diff_ids"] == digests
    assert len(set(digests)) == 2


def test_the_image_is_tagged_with_the_name_that_a_kubelet_asks_for(tmp_path):
    (manifest,) = json.loads(written(tmp_path, {})["manifest.json"])
    assert manifest["RepoTags"] == ["docker.io/library/app:1"]


def test_entrypoint_environment_and_user_are_in_the_configuration(tmp_path):
    config = json.loads(written(tmp_path, {})["config.json"])["config"]
    assert (config["Entrypoint"], config["Env"], config["User"]) == (["/bin/app"], ["PATH=/bin"], "1000")


def test_files_are_roots_and_everyone_may_read_them(tmp_path):
    root = tmp_path / "root"
    (root / "closed").mkdir(parents=True, mode=0o700)
    (root / "closed" / "private").write_text("x")
    (root / "closed" / "private").chmod(0o600)
    with tarfile.open(archive.layer(root, tmp_path / "layer")) as layer:
        members = {member.name: member for member in layer}
    assert all((member.uid, member.gid) == (0, 0) for member in members.values())
    assert members["closed"].mode & 0o555 == 0o555
    assert members["closed/private"].mode & 0o444 == 0o444
