"""Which Kubernetes versions the chart's tests run on: the default one, or those that RADDLE_KUBERNETES names.

`make chart-versions` names all that the project supports; one that is not built here is skipped, with what would build it.
"""

import os

import pytest

from devcluster import binaries, build
from devcluster.versions import DEFAULT_KUBERNETES, Version

VERSIONS = [Version.parse(text) for text in os.environ.get("RADDLE_KUBERNETES", str(DEFAULT_KUBERNETES)).split()]


@pytest.fixture(scope="module", params=VERSIONS, ids=str)
def kubernetes(request):
    """A version of the API server."""
    version = request.param
    if version != DEFAULT_KUBERNETES and build.built(binaries.control_plane(version), binaries.cache_folder()) is None:
        pytest.skip(f"Kubernetes {version} is not built here: python -m devcluster build --version {version}")
    return version
