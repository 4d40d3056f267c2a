"""Sets of CPUs: the kernel's text forms and an int bitmask (bit n set: CPU n is in the set).

A bitmask keeps planning cheap (a union is one machine instruction per 64 CPUs), has a value's
equality, and needs no class: parsing and formatting are all that Linux adds. Text forms follow
the kernel's Documentation/admin-guide/kernel-parameters.rst ("cpu lists") and lib/bitmap.c.
"""

from __future__ import annotations

# One more than the largest CPU id that is ever accepted: a corrupt file that says "0-99999999999"
# must cost an error, not memory. Linux's own NR_CPUS ceiling is 8192 on every architecture.
MAX_CPUS = 65536


def parse_list(text: str) -> int:
    """The set that a kernel list string names: "0-3,8" -> 0b100001111.

    "" and "(null)" (printed by some old kernels) are the empty set. A stride ("0-7:1/2") is
    understood as lib/bitmap.c defines it. Raises ValueError naming the part that is not a list.
    """
    mask = 0
    text = text.strip().strip("\0")
    if text in ("", "(null)"):
        return 0
    for part in text.split(","):
        mask |= _parse_range(part.strip())
    return mask


def _parse_range(part: str) -> int:
    span, _, stride = part.partition(":")
    first_text, dash, last_text = span.partition("-")
    first = _cpu_id(first_text, part)
    last = _cpu_id(last_text, part) if dash else first
    if last < first:
        raise ValueError(f"CPU range {part!r} runs backwards")
    if not stride:
        return ((1 << (last - first + 1)) - 1) << first
    used_text, slash, group_text = stride.partition("/")
    used, group = _cpu_id(used_text, part), _cpu_id(group_text, part)
    if not slash or not dash or group == 0 or used > group:
        raise ValueError(f"CPU range {part!r} has a malformed stride")
    # Doubled, not looped over: a text of a few kB may name thousands of groups in thousands of ranges.
    span_bits = last - first + 1
    mask, bits = (1 << used) - 1, group
    while bits < span_bits:
        mask |= mask << bits
        bits *= 2
    return (mask & ((1 << span_bits) - 1)) << first


def _cpu_id(text: str, part: str) -> int:
    text = text.strip()
    # str.isdigit accepts digits of other scripts; the kernel writes ASCII only.
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{part[:64]!r} is not a CPU list")
    cpu = int(text) if len(text) < 10 else MAX_CPUS
    if cpu >= MAX_CPUS:
        raise ValueError(f"CPU id in {part[:64]!r} is not below {MAX_CPUS}")
    return cpu


def parse_mask(text: str) -> int:
    """The set that a kernel hex mask names: "ff,00000001" -> bits 0 and 32 to 39.

    Comma-separated 32-bit words, most significant first. Raises ValueError for anything else.
    """
    text = text.strip().strip("\0")
    if text in ("", "(null)"):
        return 0
    mask = 0
    for word in text.replace(" ", "").split(","):
        if not 1 <= len(word) <= 8 or not all(c in "0123456789abcdefABCDEF" for c in word):
            raise ValueError(f"{text[:64]!r} is not a CPU mask")
        mask = (mask << 32) | int(word, 16)
    if mask >> MAX_CPUS:
        raise ValueError(f"CPU mask names a CPU id that is not below {MAX_CPUS}")
    return mask


def format_list(mask: int) -> str:
    """The shortest kernel list string of the set: 0b100001111 -> "0-3,8"; the empty set is ""."""
    parts = []
    first = 0
    while mask:
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        first += gap
        run = (~mask & (mask + 1)).bit_length() - 1
        parts.append(str(first) if run == 1 else f"{first}-{first + run - 1}")
        mask >>= run
        first += run
    return ",".join(parts)


def ids(mask: int) -> list[int]:
    """The CPU ids of the set, ascending."""
    result = []
    while mask:
        low = mask & -mask
        result.append(low.bit_length() - 1)
        mask ^= low
    return result


def of(cpus: "list[int] | tuple[int, ...] | set[int]") -> int:
    """The set of these CPU ids."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def count(mask: int) -> int:
    """How many CPUs are in the set (int.bit_count exists only from Python 3.10)."""
    return bin(mask).count("1")


def lowest(mask: int) -> int:
    """The lowest CPU of a set that is not empty."""
    return (mask & -mask).bit_length() - 1
