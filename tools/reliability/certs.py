"""The webhook's certificates in a check: what the Secret holds at first, and connections that verify what is served."""

from __future__ import annotations

import base64
import datetime as dt
import socket
import ssl
from typing import Any

from cluster.background import Background
from cluster.local_raddle import NAMESPACE, LocalRaddle
from cluster.waiting import wait
from raddle_operator import certificates
from raddle_operator.certificates.making import key_pem
from reliability.replicas import SERVER_NAME, Replicas
from reliability.world import CONFIGURATION_PATH


class Handshakes(Background):
    """Connects again all the time, as an API server would, and verifies by the bundle that is published then."""

    def __init__(self, raddle: LocalRaddle, replicas: Replicas) -> None:
        """Describe it; it begins in `with`."""
        self._raddle, self._replicas = raddle, replicas
        super().__init__()
        self.done = 0
        self.failed: list[str] = []
        self.leaves: set[bytes] = set()
        self.good_in_a_row = 0

    def go_on(self, count: int) -> None:
        """Wait for so many more."""
        seen = self.done
        wait(lambda: self.done >= seen + count, f"{count} more connections are made")

    def run(self) -> None:
        """Go on until the end."""
        with self._raddle.cluster.new_client() as client:
            while not self.end.wait(0.1):
                # The bundle first: what is served a moment later must be signed by one of it.
                bundle = client.get(CONFIGURATION_PATH)["webhooks"][0]["clientConfig"]["caBundle"]
                context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
                for address in self._replicas.processes:
                    self._connect(context, address)

    def _connect(self, context: ssl.SSLContext, address: str) -> None:
        self.done += 1
        try:
            with (
                socket.create_connection((address, self._replicas.port), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=SERVER_NAME) as connection,
            ):
                self.leaves.add(connection.getpeercert(binary_form=True) or b"")
        except OSError as error:
            self.failed.append(str(error))
            self.good_in_a_row = 0
        else:
            self.good_in_a_row += 1


def secret(authority: certificates.Authority, now: dt.datetime) -> dict[str, Any]:
    """The Secret as the controller would have left it: an authority and a leaf that it has signed."""
    assert authority.key is not None
    leaf, key = certificates.new_leaf(authority, certificates.CertificateSettings().names, now)
    contents = {"tls.crt": leaf, "tls.key": key, "ca.crt": authority.pem, "ca.key": key_pem(authority.key)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "raddle-webhook-tls", "namespace": NAMESPACE},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in contents.items()},
    }
