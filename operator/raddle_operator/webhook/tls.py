"""The serving certificate: loaded from two files, and replaced in place when they change.

The listener keeps one SSL context for life. At each handshake that context hands over to the one of the newest
certificate (the same hook that chooses a virtual host by name; OpenSSL calls it without a name too). So nothing is
closed at a rotation, a half-written pair of files never serves, and the type of the key may change.

Where clients must show a certificate, their authorities come from a third file, which is followed in the same way.
Whether one is asked for belongs to the listener's context: OpenSSL takes certificate, key and authorities over from
another context, and nothing else.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"


class CertificateError(Exception):
    """The files are there and can't be served; the message says why."""


class Files(NamedTuple):
    """What the files hold. ``clients_pem`` None: clients need no certificate."""

    certificate_pem: bytes
    key_pem: bytes
    clients_pem: bytes | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The files as read, and when the certificate ends (seconds since the epoch)."""

    files: Files
    expires_at_s: float


class ServingCertificate:
    """The certificate of one listener, read from ``folder``; ``client_ca_file`` holds the authorities of its clients.

    ``client_ca_file`` None: clients need no certificate.
    """

    def __init__(self, folder: Path, client_ca_file: Path | None = None) -> None:
        self.loaded: Loaded | None = None
        """What serves now; None before the first load."""
        self._folder: Final = folder
        self._client_ca_file: Final = client_ca_file
        self._current: ssl.SSLContext | None = None
        self.context: Final = self._new_context()
        """For the listener."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._client_ca_file is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            # A session that is taken up again is not verified again. 1.3 has them by tickets only, which are not given.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
        return context

    def load(self) -> bool:
        """Serves what the files hold now; returns whether that is new. Missing files change nothing.

        Raises CertificateError for files that can't be used; then what was loaded goes on serving.
        """
        files = self._read()
        if files is None or (self.loaded is not None and files == self.loaded.files):
            return False
        context = self._new_context()
        try:
            # The password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY, password="")
            expires_at_s = x509.load_pem_x509_certificate(files.certificate_pem).not_valid_after_utc.timestamp()
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CertificateError(f"{CERTIFICATE} and {KEY} can't be used together: {error}") from None
        if files.clients_pem is not None:
            try:
                # Comments between certificates may be in any script; OpenSSL is to be given ASCII only.
                context.load_verify_locations(cadata=files.clients_pem.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError) as error:
                raise CertificateError(f"{self._client_ca_file} holds no PEM certificates: {error}") from None
        if self._read() != files:
            raise CertificateError(f"{CERTIFICATE} and {KEY} are changing")
        self._current = context
        self.loaded = Loaded(files, expires_at_s)
        return True

    def _read(self) -> Files | None:
        try:
            pair = (self._folder / CERTIFICATE).read_bytes(), (self._folder / KEY).read_bytes()
            return Files(*pair, self._read_clients())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from None

    def _read_clients(self) -> bytes | None:
        if self._client_ca_file is None:
            return None
        try:
            return self._client_ca_file.read_bytes()
        except FileNotFoundError:
            if self.loaded is None:
                raise
            return self.loaded.files.clients_pem  # without them a renewed certificate would never be served
