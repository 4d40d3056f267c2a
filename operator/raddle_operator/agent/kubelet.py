"""What the agent knows of its node's kubelet: asked now and then, kept while the kubelet only fails to answer."""

from __future__ import annotations

import http.client
import logging
import random
import ssl
import time
from collections.abc import Callable

from raddle.cpus.topology import Kubelet
from raddle_operator.agent import client
from raddle_operator.agent.client import FAILURES, AgentClient, ApiError
from raddle_operator.agent.kubelet_config import parse_configz
from raddle_operator.agent.settings import AgentSettings

log = logging.getLogger(__name__)

# A kubelet that does not answer this often in a row may have been set up again: what it said before is then unknown.
KUBELET_FAILURES = 3
# The agent may not ask, or there is nothing to ask. Not 401: so answers a kubelet that can't reach the API server to
# have the token checked. Not 429: so answers an API server that has too much to do.
REFUSALS = (http.client.FORBIDDEN, http.client.NOT_FOUND)
# A kubelet that was set up again says so in its next answer. Asked by way of the API server it is a load on that.
KUBELET_INTERVALS_S = {"Configz": 60.0, "Proxy": 600.0}


class KubeletReader:
    """Asks the kubelet for its settings now and then; what it last said stands while it only fails to answer."""

    def __init__(self, settings: AgentSettings, api: AgentClient, token: Callable[[], str]) -> None:
        self._settings = settings
        self._client, self._path = api, f"/api/v1/nodes/{settings.node_name}/proxy/configz"
        if settings.kubelet_config == "Configz":
            self._path = "/configz"
            self._client = AgentClient(endpoint(settings, token))
        self._known = Kubelet()
        self._failures = 0
        self._next = 0.0
        self._last_error = ""

    def read(self, online: int, offline: int = 0) -> Kubelet:
        """The settings as last known, for a node with these CPUs; asks again when it is time."""
        settings = self._settings
        if settings.kubelet_config == "None" or (settings.kubelet_config == "Configz" and not settings.node_ip):
            return self._known
        if time.monotonic() >= self._next:
            interval_s = settings.kubelet_interval_s
            if interval_s is None:
                interval_s = KUBELET_INTERVALS_S[settings.kubelet_config]
            answered = self._ask()
            pause_s = interval_s if answered else settings.kubelet_retry_s
            self._next = time.monotonic() + pause_s * random.uniform(0.8, 1.0)  # noqa: S311 (spreads the nodes)
        known = self._known
        if known.reserved_cpus is not None:
            # reservedSystemCPUs may name CPUs that this machine does not have.
            known = known._replace(reserved_cpus=known.reserved_cpus & (online | offline))
        return known

    def _ask(self) -> bool:
        """Whether there was an answer; a refusal is one, as asking again soon would not change it."""
        try:
            self._known = parse_configz(self._client.get(self._path), self._settings.kubelet_config)
        except FAILURES as error:
            self._failures += 1
            refused = isinstance(error, ApiError) and error.status in REFUSALS
            if refused or self._failures >= KUBELET_FAILURES:
                self._known = Kubelet()
            if str(error) != self._last_error:
                self._last_error = str(error)
                log.warning(
                    "kubelet configuration unknown mode=%s error=%r", self._settings.kubelet_config, self._last_error
                )
            return refused
        self._failures = 0
        self._last_error = ""
        return True


def endpoint(settings: AgentSettings, token: Callable[[], str]) -> client.Endpoint:
    """The node's kubelet, which is told the token."""
    ca_file = client.SERVICE_ACCOUNT / "ca.crt"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.kubelet_insecure_tls:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    elif ca_file.is_file():
        tls.load_verify_locations(ca_file)
    return client.Endpoint(host=settings.node_ip, port=settings.kubelet_port, tls=lambda: tls, token=token)
