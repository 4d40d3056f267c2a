"""The OCI layout: an index of both architectures, SBOMs attached as artifacts, sizes written between two marks."""

import hashlib
import json

import pytest

from images import layout, model, sizes
from images.build import Built

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    (tmp_path / "index.json").write_text('{"schemaVersion": 2, "manifests": []}')
    return tmp_path


def written(architecture):
    built = Built(
        image=model.IMAGES[0],
        architecture=architecture,
        name=f"localhost/raddle:{architecture}",
        digest="sha256:1",
        config_digest="sha256:2",
        bytes_unpacked=1,
    )
    descriptor = {"mediaType": MANIFEST, "digest": f"sha256:{architecture}", "size": 7}
    return layout.Written(built=built, descriptor=descriptor, bytes_compressed=1)


def entries(folder):
    return json.loads((folder / "index.json").read_text())["manifests"]


def blob(folder, descriptor):
    content = (folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert descriptor["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
    assert descriptor["size"] == len(content)
    return content


def test_an_index_names_each_architectures_manifest(folder):
    layout.join(folder, [written("amd64"), written("arm64")], "1.2.3")
    (entry,) = entries(folder)
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "raddle-1.2.3"}
    index = json.loads(blob(folder, entry))
    assert [(one["digest"], one["platform"]) for one in index["manifests"]] == [
        ("sha256:amd64", {"architecture": "amd64", "os": "linux"}),
        ("sha256:arm64", {"architecture": "arm64", "os": "linux"}),
    ]


def test_an_sbom_is_an_artifact_whose_subject_is_the_image(folder):
    layout.attach(folder, written("amd64"), '{"bomFormat": "CycloneDX"}')
    (entry,) = entries(folder)
    assert entry["artifactType"] == "application/vnd.cyclonedx+json"
    artifact = json.loads(blob(folder, entry))
    assert artifact["subject"] == {"mediaType": MANIFEST, "digest": "sha256:amd64", "size": 7}
    assert blob(folder, artifact["config"]) == b"{}"
    assert blob(folder, artifact["layers"][0]) == b'{"bomFormat": "CycloneDX"}'


def test_what_is_attached_comes_beside_what_is_there(folder):
    for architecture in ("amd64", "arm64"):
        layout.attach(folder, written(architecture), architecture)
    layout.join(folder, [written("amd64"), written("arm64")], "1")
    assert len(entries(folder)) == 3


def test_sizes_replace_the_table_between_the_marks_and_nothing_else(tmp_path):
    page = tmp_path / "images.md"
    page.write_text(f"before\n{sizes.BEGIN}\nold\n{sizes.END}\nafter\n")
    sizes.write("new\n", page)
    assert page.read_text() == f"before\n{sizes.BEGIN}\nnew\n{sizes.END}\nafter\n"


@pytest.mark.parametrize("text", ["", f"{sizes.BEGIN}\n", f"{sizes.END}\n"])
def test_a_page_without_the_marks_is_left_alone(tmp_path, text):
    page = tmp_path / "images.md"
    page.write_text(text)
    with pytest.raises(model.ImagesError, match=r"images\.md has no lines"):
        sizes.write("new\n", page)
    assert page.read_text() == text
