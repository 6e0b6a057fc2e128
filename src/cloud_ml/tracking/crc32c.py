"""The checksum CRC-32C (Castagnoli), as the records of event files carry it: masked."""

from __future__ import annotations

from google_crc32c import value as crc32c

__all__ = ["MASK_DELTA", "crc32c", "masked_crc32c"]

MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """The checksum of ``data``, masked as TensorFlow does it (a checksum beside the bytes that it
    is of makes a poor one of both).
    """
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF
