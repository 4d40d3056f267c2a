"""All attacks, in the order in which they run and are shown."""

from __future__ import annotations

from typing import Final

from reliability import attack_load, attack_port, attack_reviews, attack_rights, attack_users
from reliability.model import Check

CHECKS: Final[tuple[Check, ...]] = (
    *attack_users.CHECKS,
    *attack_load.CHECKS,
    *attack_port.CHECKS,
    *attack_rights.CHECKS,
    *attack_reviews.CHECKS,
)
