"""The webhook's own certificates: an authority and a leaf, kept in one Secret, renewed before they end.

`decide` is pure: what the Secret and the webhook configuration hold, and the time, give the next step. The order
guarantees that the API server trusts whatever the webhook serves: a new authority is first added to the bundle that
the configuration holds, beside the old one, and signs a leaf only in a later pass. Deleting the Secret revokes all at
once: pods created until the new one is mounted (a minute or two) get no values.

Only the controller's leader runs this. The Secret holds tls.crt and tls.key for the webhook, and for us ca.key and
ca.crt: every authority that is to be trusted, the one that signs first.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from raddle_operator.kube import MUTATING_WEBHOOKS, SECRETS, AlreadyExists, Conflict, Kube, NotFound, Object
from raddle_operator.ownership import Owners, nobody

log = logging.getLogger(__name__)

AUTHORITY_LIFE: Final = timedelta(days=5 * 365)
AUTHORITY_RENEWED_BEFORE: Final = timedelta(days=180)
"""Longer than a leaf lives, so that no leaf outlives its authority."""
LEAF_LIFE: Final = timedelta(days=90)
LEAF_RENEWED_BEFORE: Final = timedelta(days=30)
BACKDATED: Final = timedelta(hours=1)
"""Clocks of API servers may be behind ours."""
SETTLE: Final = timedelta(seconds=30)
"""Between a bundle's change and its first use: every API server must have seen it."""
CHECK_AGAIN: Final = timedelta(minutes=1)
"""A manifest applied anew may have emptied the bundle, and until it is back no pod gets values."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority. ``key`` is None where only its certificate is known."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is there now. ``trusted`` are the Secret's authorities, the signing one first; ``leaf`` None: unusable.

    ``bundles`` holds, for each webhook of the configuration, the set of certificates (DER) that the API server trusts.
    """

    signer: Authority | None
    trusted: tuple[x509.Certificate, ...]
    leaf: x509.Certificate | None
    bundles: tuple[frozenset[bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do now, and when to look again.

    ``new_authority``: make one, to sign from the next pass on. ``new_leaf``: sign one with the present authority (or,
    where there is no usable leaf, with the new one). ``publish``: write the bundle. ``because`` says why, for the log.
    """

    new_authority: bool = False
    new_leaf: bool = False
    publish: bool = False
    because: str = ""
    again_in: timedelta = CHECK_AGAIN


def decide(state: State, now: datetime, names: Sequence[str]) -> Step:
    """Return the next step. Pure; ``now`` is aware."""
    signer = state.signer
    if signer is None:
        return Step(new_authority=True, new_leaf=True, publish=True, because="no authority", again_in=SETTLE)
    leaf_trouble = _leaf_trouble(state, now, names)
    if _left(signer.certificate, now) <= AUTHORITY_RENEWED_BEFORE:
        # The leaf that serves now stays; were it unusable, nothing could be lost by a new one.
        return Step(
            new_authority=True,
            new_leaf=state.leaf is None or _left(state.leaf, now) <= timedelta(0),
            publish=True,
            because="the authority ends soon",
            again_in=SETTLE,
        )
    published = all(_der(signer.certificate) in bundle for bundle in state.bundles)
    if not published:
        return Step(publish=True, because="the authority is not in every bundle", again_in=SETTLE)
    if leaf_trouble:
        return Step(new_leaf=True, because=leaf_trouble, again_in=SETTLE)
    wanted = {_der(certificate) for certificate in state.trusted if _left(certificate, now) > timedelta(0)}
    if any(bundle != wanted for bundle in state.bundles):
        return Step(publish=True, because="a bundle differs", again_in=SETTLE)
    return Step()


def _leaf_trouble(state: State, now: datetime, names: Sequence[str]) -> str:
    """Why the leaf is to be replaced; "" when it is not."""
    leaf, signer = state.leaf, state.signer
    if leaf is None:
        return "no usable leaf"
    if _left(leaf, now) <= LEAF_RENEWED_BEFORE:
        return "the leaf ends soon"
    if set(names) - _names_of(leaf):
        return "the leaf lacks a name"
    if signer is not None and not _is_signed_by(leaf, signer.certificate):
        return "the leaf is of another authority"
    return ""


def _left(certificate: x509.Certificate, now: datetime) -> timedelta:
    return certificate.not_valid_after_utc - now


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    found = set(names.get_values_for_type(x509.DNSName))
    return found | {str(address) for address in names.get_values_for_type(x509.IPAddress)}


def _is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


# ---- making certificates


def new_authority(now: datetime) -> Authority:
    """Return a new authority (P-256). Its name has its time, so that the old one and the new one can be told apart."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"raddle webhook {now:%Y-%m-%d %H:%M:%S}")])
    certificate = (
        _builder(name, name, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key)


def new_leaf(authority: Authority, names: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    """Return a serving certificate and its key (P-256) as PEM. ``names`` are DNS names or IP addresses.

    Raises ValueError for an authority without a key.
    """
    if authority.key is None:
        raise ValueError("the authority has no key to sign with")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = (
        _builder(subject, authority.certificate.subject, key, now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def local_issue(folder: Path, names: Sequence[str], now: datetime | None = None) -> bytes:
    """Write tls.crt, tls.key and ca.crt for these names into ``folder``; return the authority's certificate as PEM.

    For harnesses and tests, where no controller runs; the authority's key is thrown away.
    """
    moment = now or datetime.now(UTC)
    authority = new_authority(moment)
    certificate_pem, key_pem = new_leaf(authority, names, moment)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data, mode in (
        ("tls.crt", certificate_pem, 0o644),
        ("tls.key", key_pem, 0o600),
        ("ca.crt", authority.pem, 0o644),
    ):
        path = folder / name
        path.unlink(missing_ok=True)
        path.touch(mode=mode)
        path.write_bytes(data)
    return authority.pem


# ---- reading and writing the cluster


def read_state(secret: Object | None, configuration: Object | None) -> State:
    """Return what the two objects hold; None means that the object is not there. What can't be read is not there."""
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
            frozenset(_der(found) for found in _certificates(_decoded(webhook["clientConfig"], "caBundle")))
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
    """Take the next step; return after how many seconds to look again.

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
    trusted = [certificate for certificate in state.trusted if _left(certificate, moment) > timedelta(0)]
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
    """Write what the step makes new; return the authorities that are to be trusted then, the signing one first."""
    signer = state.signer
    if step.new_authority or signer is None:
        signer = new_authority(now)
        trusted = [signer.certificate, *trusted][:MAX_TRUSTED]
    data = dict((secret or {}).get("data") or {})
    if step.new_leaf:
        certificate_pem, key_pem = new_leaf(signer, settings.names, now)
        data["tls.crt"], data["tls.key"] = _encoded(certificate_pem), _encoded(key_pem)
    data["ca.crt"] = _encoded(b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in trusted))
    if signer.key is not None:
        data["ca.key"] = _encoded(_key_pem(signer.key))
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
    bundle = _encoded(b"".join(found.public_bytes(serialization.Encoding.PEM) for found in trusted))
    operations: list[Object] = []
    for index, webhook in enumerate(configuration.get("webhooks") or []):
        operations += [
            {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook["name"]},
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle},
        ]
    await kube.patch(MUTATING_WEBHOOKS, settings.configuration, operations, kind="json", field_manager=FIELD_MANAGER)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
