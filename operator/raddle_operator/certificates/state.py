"""What is to be done about the webhook's certificates next, as a pure function of what is there and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from raddle_operator.certificates.x509 import Authority

AUTHORITY_RENEWED_BEFORE: Final = timedelta(days=180)
"""Longer than a leaf lives, so that no leaf outlives its authority."""
LEAF_RENEWED_BEFORE: Final = timedelta(days=30)
SETTLE: Final = timedelta(seconds=30)
"""Between a bundle's change and its first use: every API server must have seen it."""
CHECK_AGAIN: Final = timedelta(minutes=1)
"""A manifest applied again may have emptied the bundle, and until it is back no pod gets values."""


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
    where that can't be used, with the new one). ``publish``: write the bundle. ``because`` says why, for the log.
    """

    new_authority: bool = False
    new_leaf: bool = False
    publish: bool = False
    because: str = ""
    again_in: timedelta = CHECK_AGAIN


def decide(state: State, now: datetime, names: Sequence[str]) -> Step:
    """The next step. Pure; ``now`` is aware."""
    signer = state.signer
    if signer is None:
        return Step(new_authority=True, new_leaf=True, publish=True, because="no CA certificate", again_in=SETTLE)
    leaf_trouble = _leaf_trouble(state, now, names)
    authority_trouble = _authority_trouble(signer, now)
    if authority_trouble:
        # The leaf that serves now stays; were it unusable, nothing could be lost by a new one.
        return Step(
            new_authority=True,
            new_leaf=state.leaf is None or not _is_valid(state.leaf, now),
            publish=True,
            because=authority_trouble,
            again_in=SETTLE,
        )
    published = all(der(signer.certificate) in bundle for bundle in state.bundles)
    if not published:
        return Step(publish=True, because="the CA certificate is not in every caBundle", again_in=SETTLE)
    if leaf_trouble:
        return Step(new_leaf=True, because=leaf_trouble, again_in=SETTLE)
    wanted = {der(certificate) for certificate in state.trusted if left(certificate, now) > timedelta(0)}
    if any(bundle != wanted for bundle in state.bundles):
        return Step(publish=True, because="a caBundle differs", again_in=SETTLE)
    return Step()


def _authority_trouble(signer: Authority, now: datetime) -> str:
    """Why another authority is to be made; "" when none is."""
    if left(signer.certificate, now) <= AUTHORITY_RENEWED_BEFORE:
        return "the CA certificate expires soon"
    if not _is_valid(signer.certificate, now):
        return "the CA certificate is not valid yet (its clock was ahead)"
    return ""


def _leaf_trouble(state: State, now: datetime, names: Sequence[str]) -> str:
    """Why the leaf is to be replaced; "" when it is not."""
    leaf, signer = state.leaf, state.signer
    if leaf is None:
        return "no usable serving certificate"
    if left(leaf, now) <= LEAF_RENEWED_BEFORE:
        return "the serving certificate expires soon"
    if not _is_valid(leaf, now):
        return "the serving certificate is not valid yet (its clock was ahead)"
    if set(names) - _names_of(leaf):
        return "the serving certificate lacks a DNS name"
    if signer is not None and not _is_signed_by(leaf, signer.certificate):
        return "the serving certificate is signed by another CA"
    return ""


def left(certificate: x509.Certificate, now: datetime) -> timedelta:
    """How long the certificate is valid yet; negative when it has ended."""
    return certificate.not_valid_after_utc - now


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def der(certificate: x509.Certificate) -> bytes:
    """The certificate's bytes, by which two are the same or not."""
    return certificate.public_bytes(serialization.Encoding.DER)


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    result = set(names.get_values_for_type(x509.DNSName))
    return result | {str(address) for address in names.get_values_for_type(x509.IPAddress)}


def _is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
