"""The serving certificate: loaded from two files, and replaced in place when they change.

The listener keeps one SSL context for life. At each handshake that context hands over to the one of the newest
certificate (the same hook that chooses a virtual host by name; OpenSSL calls it without a name too). So nothing is
closed at a rotation, a half-written pair of files never serves, and the type of the key may change.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"


class CertificateError(Exception):
    """The files are there and can't be served; the message says why."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A certificate chain and its key as read, and when the certificate ends (seconds since the epoch)."""

    certificate_pem: bytes
    key_pem: bytes
    expires_at_s: float


class ServingCertificate:
    """The certificate of one listener, read from ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.loaded: Loaded | None = None
        """What serves now; None before the first load."""
        self._folder: Final = folder
        self._current: ssl.SSLContext | None = None
        self.context: Final = new_context()
        """For the listener."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def load(self) -> bool:
        """Serve what the files hold now; return whether that is new. Missing files change nothing.

        Raises CertificateError for files that can't be used; then what was loaded goes on serving.
        """
        pair = self._read()
        if pair is None or (self.loaded is not None and pair == (self.loaded.certificate_pem, self.loaded.key_pem)):
            return False
        context = new_context()
        try:
            # The password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY, password="")
            expires_at_s = x509.load_pem_x509_certificate(pair[0]).not_valid_after_utc.timestamp()
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CertificateError(f"{CERTIFICATE} and {KEY} can't be used together: {error}") from None
        if self._read() != pair:
            raise CertificateError(f"{CERTIFICATE} and {KEY} are changing")
        self._current = context
        self.loaded = Loaded(*pair, expires_at_s)
        return True

    def _read(self) -> tuple[bytes, bytes] | None:
        try:
            return (self._folder / CERTIFICATE).read_bytes(), (self._folder / KEY).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from None


def new_context() -> ssl.SSLContext:
    """Return a server's context: TLS 1.2 or newer, no client certificates, Python's choice of ciphers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
