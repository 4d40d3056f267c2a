"""Names of Arm cores by who designed them and which core it is: the fields of MIDR_EL1 that cpuinfo shows too.

The numbers are those of Linux's arch/arm64/include/asm/cputype.h and of the cores' reference manuals, the names as
lscpu prints them. Servers, and what such clusters of mixed cores are made of; a core that isn't here has no name.
"""

from __future__ import annotations

_NAMES = {
    0x41: {  # Arm
        0xB76: "ARM1176",
        0xC05: "Cortex-A5",
        0xC07: "Cortex-A7",
        0xC08: "Cortex-A8",
        0xC09: "Cortex-A9",
        0xC0D: "Cortex-A17",
        0xC0E: "Cortex-A17",
        0xC0F: "Cortex-A15",
        0xD01: "Cortex-A32",
        0xD02: "Cortex-A34",
        0xD03: "Cortex-A53",
        0xD04: "Cortex-A35",
        0xD05: "Cortex-A55",
        0xD06: "Cortex-A65",
        0xD07: "Cortex-A57",
        0xD08: "Cortex-A72",
        0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77",
        0xD0E: "Cortex-A76AE",
        0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE",
        0xD43: "Cortex-A65AE",
        0xD44: "Cortex-X1",
        0xD46: "Cortex-A510",
        0xD47: "Cortex-A710",
        0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2",
        0xD4A: "Neoverse-E1",
        0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C",
        0xD4D: "Cortex-A715",
        0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520",
        0xD81: "Cortex-A720",
        0xD82: "Cortex-X4",
        0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925",
        0xD87: "Cortex-A725",
        0xD8E: "Neoverse-N3",
    },
    0x42: {0x516: "ThunderX2"},  # Broadcom
    0x43: {0x0A0: "ThunderX", 0x0A1: "ThunderX-88XX", 0x0AF: "ThunderX2-99xx", 0x0B8: "ThunderX3-T110"},  # Cavium
    0x46: {0x001: "A64FX"},  # Fujitsu
    0x48: {0xD01: "Kunpeng-920", 0xD40: "Cortex-A76"},  # HiSilicon
    0x4E: {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel"},  # NVIDIA
    0x50: {0x000: "X-Gene"},  # APM
    0x51: {  # Qualcomm
        0x800: "Falkor-V1/Kryo",
        0x801: "Kryo-V2",
        0x802: "Kryo-3XX-Gold",
        0x803: "Kryo-3XX-Silver",
        0x804: "Kryo-4XX-Gold",
        0x805: "Kryo-4XX-Silver",
        0xC00: "Falkor",
    },
    0x61: {  # Apple
        0x022: "Icestorm-M1",
        0x023: "Firestorm-M1",
        0x024: "Icestorm-M1-Pro",
        0x025: "Firestorm-M1-Pro",
        0x028: "Icestorm-M1-Max",
        0x029: "Firestorm-M1-Max",
        0x032: "Blizzard-M2",
        0x033: "Avalanche-M2",
    },
    0x70: {0x660: "FTC660", 0x661: "FTC661", 0x662: "FTC662", 0x663: "FTC663"},  # Phytium
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},  # Ampere
}


def name(implementer: int, part: int) -> str:
    """The core's name, such as Cortex-A510; "" where this table has none."""
    return _NAMES.get(implementer, {}).get(part, "")
