"""An image's tarball, against what the image specification says of it."""

import hashlib
import json
import tarfile

from e2e import archive

IMAGE = archive.Image(name="app:1", entrypoint=["/bin/app"], env={"PATH": "/bin"}, user="1000")


def test_the_image_has_its_layers_in_order_its_configuration_and_the_name_that_a_kubelet_asks_for(tmp_path):
    layers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
        layers.append(archive.layer(tmp_path / name, tmp_path / f"{name}.layer"))
    archive.write(layers, IMAGE, tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as whole:
        found = {member.name: whole.extractfile(member).read() for member in whole}
    (manifest,) = json.loads(found["manifest.json"])
    assert manifest["RepoTags"] == ["docker.io/library/app:1"]
    assert [found[layer] for layer in manifest["Layers"]] == [path.read_bytes() for path in layers]
    document = json.loads(found[manifest["Config"]])
    digests = ["sha256:" + hashlib.sha256(found[layer]).hexdigest() for layer in manifest["Layers"]]
    assert document["rootfs"]["diff_ids"] == digests
    config = document["config"]
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
