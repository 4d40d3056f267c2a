"""Makes certificates: an authority, a leaf that it signs, both of P-256 keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=5 * 365)
LEAF_LIFE: Final = timedelta(days=90)
BACKDATED: Final = timedelta(hours=1)
"""Clocks of API servers may be behind ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority. ``key`` is None where only its certificate is known."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def new_authority(now: datetime) -> Authority:
    """A new authority (P-256). Its name has its time, so that the old one and the new one can be told apart."""
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
    """A serving certificate and its key (P-256) as PEM. ``names`` are DNS names or IP addresses.

    Raises ValueError for an authority without a key.
    """
    if authority.key is None:
        raise ValueError("the CA has no private key")
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
    return certificate.public_bytes(serialization.Encoding.PEM), key_pem(key)


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


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PKCS#8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def local_issue(folder: Path, names: Sequence[str], now: datetime | None = None) -> bytes:
    """Writes tls.crt, tls.key and ca.crt for these names into ``folder``; returns the authority's certificate as PEM.

    For harnesses and tests, where no controller runs; the authority's key is thrown away.
    """
    moment = now or datetime.now(UTC)
    authority = new_authority(moment)
    certificate_pem, leaf_key_pem = new_leaf(authority, names, moment)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data, mode in (
        ("tls.crt", certificate_pem, 0o644),
        ("tls.key", leaf_key_pem, 0o600),
        ("ca.crt", authority.pem, 0o644),
    ):
        path = folder / name
        path.unlink(missing_ok=True)
        path.touch(mode=mode)
        path.write_bytes(data)
    return authority.pem
