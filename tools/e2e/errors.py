"""What this package raises on purpose, and what else means that a step failed."""

import http.client
import subprocess
from typing import Final

from cluster.client import ApiError
from cluster.errors import DevclusterError
from lab.errors import LabError
from unavailable import UnavailableError


class E2EError(RuntimeError):
    """A step failed; the message is meant for people."""


class E2EUnavailableError(E2EError, UnavailableError):
    """No node can run on this machine at all; the message says what is missing."""


# An API server or a kubelet that did not answer, or said no, this time.
REFUSALS: Final = (ApiError, OSError, http.client.HTTPException)
FAILURES: Final = (E2EError, DevclusterError, LabError, UnavailableError, subprocess.SubprocessError, *REFUSALS)
