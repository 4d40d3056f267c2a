"""Keys and certificates of one cluster: an authority, and certificates that it signs for servers and users.

All keys are ECDSA P-256 (made in about a millisecond) except the service account key, which is RSA because clients that
check tokens by RS256 alone exist.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=365)
# Virtual machines on this host may have clocks that lag by minutes.
CLOCK_SKEW = dt.timedelta(hours=1)


def _name(common_name: str, organizations: Iterable[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def write_service_account_keys(private: Path, public: Path) -> None:
    """Writes the RSA key pair that signs service account tokens, as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write_private(private, _key_pem(key))
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


class Authority:
    """A certificate authority whose certificate and key lie in `directory` as ca.crt and ca.key."""

    def __init__(self, directory: Path) -> None:
        """Makes the authority and writes its files."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("devcluster")
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.certificate_file = directory / "ca.crt"
        self.key_file = directory / "ca.key"
        self.certificate_file.write_bytes(self.pem)
        write_private(self.key_file, _key_pem(self._key))

    def server(self, names: Sequence[str]) -> tuple[bytes, bytes]:
        """Certificate and key (PEM) of a server known by these DNS names and IP addresses."""
        return self._issue(_name(names[0]), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, groups: Sequence[str] = ()) -> tuple[bytes, bytes]:
        """Certificate and key (PEM) that the API server takes for `user`, a member of `groups`."""
        return self._issue(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, alternatives: Sequence[str]
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(name) for name in alternatives]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
