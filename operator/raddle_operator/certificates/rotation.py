"""Reads the Secret and the webhook configuration, and writes what the next step makes of them."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from raddle_operator.certificates.state import SETTLE, State, Step, decide, der, left
from raddle_operator.certificates.x509 import Authority, key_pem, new_authority, new_leaf
from raddle_operator.kube import MUTATING_WEBHOOKS, SECRETS, AlreadyExists, Conflict, Kube, NotFound, Object
from raddle_operator.kube.ownership import Owners, nobody

log = logging.getLogger(__name__)

MAX_TRUSTED: Final = 4
FIELD_MANAGER: Final = "raddle-controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """Where the certificates are kept and what they are for. ``extra_names`` are further DNS names or addresses.

    ``owners`` are whom the Secret goes with.
    """

    namespace: str = "raddle-system"
    secret: str = "raddle-webhook-tls"  # noqa: S105 (a name)
    service: str = "raddle-webhook"
    configuration: str = "raddle"
    extra_names: tuple[str, ...] = ()
    owners: Owners = nobody

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the leaf; the API server uses the one that ends in .svc."""
        service = f"{self.service}.{self.namespace}"
        return (f"{service}.svc", service, f"{service}.svc.cluster.local", *self.extra_names)


def read_state(secret: Object | None, configuration: Object | None) -> State:
    """What the two objects hold; None means that the object is not there. What can't be read is not there."""
    data = (secret or {}).get("data") or {}
    trusted = tuple(_certificates(_decoded(data, "ca.crt")))
    signer = None
    key = _key(_decoded(data, "ca.key"))
    if trusted and key is not None and trusted[0].public_key() == key.public_key():
        signer = Authority(certificate=trusted[0], key=key)
    leaves = _certificates(_decoded(data, "tls.crt"))
    leaf_key = _key(_decoded(data, "tls.key"))
    usable = bool(leaves) and leaf_key is not None and leaves[0].public_key() == leaf_key.public_key()
    webhooks = (configuration or {}).get("webhooks") or []
    return State(
        signer=signer,
        trusted=trusted,
        leaf=leaves[0] if usable else None,
        bundles=tuple(
            frozenset(der(item) for item in _certificates(_decoded(webhook["clientConfig"], "caBundle")))
            for webhook in webhooks
        ),
    )


def _decoded(data: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key) or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


async def ensure(
    kube: Kube, settings: CertificateSettings, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> float:
    """Takes the next step; returns after how many seconds to look again.

    Raises KubeError for what may pass (look again soon). A missing webhook configuration is no error: the Secret is
    made, and the bundle is written when the configuration comes.
    """
    secret = await _found(kube, SECRETS, settings.secret, settings.namespace)
    configuration = await _found(kube, MUTATING_WEBHOOKS, settings.configuration)
    state = read_state(secret, configuration)
    moment = now()
    step = decide(state, moment, settings.names)
    if step.because:
        log.info("webhook certificates: %s", step.because)
    trusted = [certificate for certificate in state.trusted if left(certificate, moment) > timedelta(0)]
    if step.new_authority or step.new_leaf:
        try:
            trusted = await _write_secret(kube, settings, secret, step, state, trusted, moment)
        except (Conflict, AlreadyExists):
            return SETTLE.total_seconds()  # somebody else has written: look at that first
    if step.publish and configuration is not None:
        await _publish(kube, settings, configuration, trusted)
    if configuration is None:
        return SETTLE.total_seconds()
    return step.again_in.total_seconds()


async def _found(kube: Kube, resource: Any, name: str, namespace: str = "") -> Object | None:
    try:
        return await kube.get(resource, name, namespace)
    except NotFound:
        return None


async def _write_secret(
    kube: Kube,
    settings: CertificateSettings,
    secret: Object | None,
    step: Step,
    state: State,
    trusted: list[x509.Certificate],
    now: datetime,
) -> list[x509.Certificate]:
    """Writes what the step makes new; returns the authorities that are to be trusted then, the signing one first."""
    signer = state.signer
    if step.new_authority or signer is None:
        signer = new_authority(now)
        trusted = [signer.certificate, *trusted][:MAX_TRUSTED]
    data = dict((secret or {}).get("data") or {})
    if step.new_leaf:
        certificate_pem, leaf_key_pem = new_leaf(signer, settings.names, now)
        data["tls.crt"], data["tls.key"] = _encoded(certificate_pem), _encoded(leaf_key_pem)
    data["ca.crt"] = _encoded(b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in trusted))
    if signer.key is not None:
        data["ca.key"] = _encoded(key_pem(signer.key))
    owners = await settings.owners()
    metadata: Object = {"name": settings.secret, "namespace": settings.namespace, "ownerReferences": owners}
    if secret is not None:
        # Were another to have written meanwhile, its authority must not be lost.
        metadata["resourceVersion"] = secret["metadata"]["resourceVersion"]
    body: Object = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
    # Apply, because the right to create can be limited to one name only for it.
    await kube.apply(SECRETS, body, field_manager=FIELD_MANAGER)
    return trusted


async def _publish(
    kube: Kube, settings: CertificateSettings, configuration: Object, trusted: Sequence[x509.Certificate]
) -> None:
    bundle = _encoded(b"".join(item.public_bytes(serialization.Encoding.PEM) for item in trusted))
    operations: list[Object] = []
    for index, webhook in enumerate(configuration.get("webhooks") or []):
        operations += [
            {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook["name"]},
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle},
        ]
    await kube.patch(MUTATING_WEBHOOKS, settings.configuration, operations, kind="json", field_manager=FIELD_MANAGER)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
