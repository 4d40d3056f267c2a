"""The API server's calls of Raddle's webhook: where they go, and how many it has given up."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from cluster import Client
from reliability.world import CONFIGURATION_PATH

_GIVEN_UP: Final = "apiserver_admission_webhook_fail_open_count{"


def address(client: Client) -> tuple[str, int]:
    """Return host and port of the webhook, as its configuration says by a URL."""
    parts = urlsplit(client.get(CONFIGURATION_PATH)["webhooks"][0]["clientConfig"]["url"])
    return parts.hostname or "", parts.port or 443


def failed_open(client: Client) -> int:
    """Return how many calls this API server process has given up, and let the request pass."""
    return count(str(client.get("/metrics")["text"]))


def count(text: str) -> int:
    """Return the calls of Raddle's webhooks that failed open, by the text of an API server's metrics."""
    lines = (line for line in text.splitlines() if line.startswith(_GIVEN_UP) and "raddle.dev" in line)
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))
