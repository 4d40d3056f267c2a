"""`raddle selftest`: ask the webhook as the API server would, by its Service's name and over TLS, and judge the answer.

`helm test` runs it in a pod. It reads and writes nothing in the cluster.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import uuid
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

PODS_PATH: Final = "/mutate/pods"
BETWEEN_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 5.0
ASKED: Final = "CERTIFICATE_REQUIRED"
"""What OpenSSL calls the alert of a server that was shown no certificate; some hang up before it is sent."""


class SelftestError(Exception):
    """The webhook did not answer as it must; the message says what was expected."""


@click.command()
@click.option("--url", required=True, help="URL of the webhook: https://HOST[:PORT], without a path.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path), help="CA certificate (PEM). If absent, TLS is not verified."
)
@click.option("--expect-refusal", is_flag=True, help="Succeed if the webhook requires a client certificate.")
@click.option("--wait-s", default=60.0, show_default=True, help="Seconds to wait for the webhook to respond.")
def selftest(url: str, ca_file: Path | None, expect_refusal: bool, wait_s: float) -> None:
    """Check that the webhook answers an AdmissionReview; with --ca-file, verify its certificate."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise click.UsageError(f"--url: got {url!r}, expected https://HOST[:PORT]")
    verified = ca_file is not None and ca_file.exists()
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            answer = ask(parts.hostname, parts.port or 443, ca_file if verified else None)
            break
        except (OSError, http.client.HTTPException, SelftestError) as error:
            if expect_refusal and is_refusal(error):
                click.echo(f"{url}{PODS_PATH} requires a client certificate, so it answers only the API server.")
                return
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"{url}{PODS_PATH}: {error}") from None
            time.sleep(BETWEEN_S)
    if expect_refusal:
        raise click.ClickException(f"{url}{PODS_PATH} answers without a client certificate, expected a refusal")
    click.echo(f"{url}{PODS_PATH} answered in {answer * 1000:.0f} ms and allows the pod.")
    click.echo(f"Its certificate is signed by {ca_file}." if verified else "Its certificate was not verified.")


def ask(host: str, port: int, ca_file: Path | None) -> float:
    """Sends the review of a pod that nobody creates; returns the seconds that the whole call took.

    Raises SelftestError for any answer that does not allow the pod, OSError where there is none.
    """
    context = ssl.create_default_context(cafile=ca_file)
    if ca_file is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    sent = review()
    began_s = time.perf_counter()
    connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_TIMEOUT_S, context=context)
    try:
        try:
            connection.connect()
        except (ConnectionResetError, ssl.SSLEOFError) as error:
            # As a proxy in front of no webhook does; one that asks for a certificate hangs up after that.
            raise SelftestError(f"hung up during TLS: {error}") from None
        connection.request("POST", PODS_PATH, json.dumps(sent), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    judge(sent["request"]["uid"], response.status, body)
    return time.perf_counter() - began_s


def is_refusal(error: Exception) -> bool:
    """Whether TLS went well and then the server hung up, as it does where it was shown no certificate."""
    return isinstance(error, (ConnectionResetError, ssl.SSLEOFError)) or ASKED in str(error)


def judge(uid: str, status: int, body: bytes) -> None:
    """Raises SelftestError unless this is an AdmissionReview that allows the request `uid`."""
    if status != http.HTTPStatus.OK:
        raise SelftestError(f"got HTTP {status}, expected 200: {body[:200]!r}")
    try:
        answer = json.loads(body)["response"]
        result = (answer["uid"], answer["allowed"])
    except (ValueError, KeyError, TypeError):
        raise SelftestError(f"got {body[:200]!r}, expected an AdmissionReview") from None
    if result != (uid, True):
        raise SelftestError(f"got uid and allowed {result}, expected {(uid, True)}")


def review() -> dict[str, Any]:
    """An AdmissionReview of a dry run, as the API server sends it for a pod."""
    name, namespace = "raddle-selftest", "default"
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    container = {"name": "main", "image": "example", "resources": {"limits": {"cpu": "1"}}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": name,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": "raddle-selftest"},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"containers": [container]},
            },
            "oldObject": None,
            "dryRun": True,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }
