"""Sobol sequences with a scramble of Owen's kind, a point by its number. Standard library only.

A sequence of few points covers each axis, and each pair of axes, more evenly than chance does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from cloud_ml.tuning.sobol_numbers import TABLE

_BITS = 32
_MASK = (1 << _BITS) - 1
_FACTORS = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)
"""Of the hash by S. Laine and T. Karras in which a bit depends on lower ones only."""


def sobol_point(number: int, dimensions: int, seed: int) -> list[float]:
    """The point of that number, from 0, in the unit cube. A seed names a sequence.

    Raises:
        ValueError: There are no direction numbers for so many dimensions.
    """
    directions = _directions()
    if dimensions > len(directions):
        raise ValueError(f"there are {len(directions)} dimensions, not {dimensions}")
    keys = _keys(seed, dimensions)
    return [
        (_scramble(_value(number, directions[axis]), keys[axis]) + 0.5) / (1 << _BITS)
        for axis in range(dimensions)
    ]


def _value(number: int, directions: Sequence[int]) -> int:
    """A coordinate before the scramble: the directions of the bits of the number's Gray code."""
    gray, found = number ^ number >> 1, 0
    for direction in directions:
        if gray & 1:
            found ^= direction
        gray >>= 1
    return found


def _scramble(value: int, key: int) -> int:
    """The value after a permutation that keeps how even the sequence is (B. Burley, JCGT 2020)."""
    value = (_reverse_bits(value) + key) & _MASK
    for factor in _FACTORS:
        value ^= value * factor & _MASK
    return _reverse_bits(value)


def _reverse_bits(value: int) -> int:
    return int(f"{value:0{_BITS}b}"[::-1], 2)


@functools.lru_cache(64)
def _keys(seed: int, dimensions: int) -> Sequence[int]:
    digests = (hashlib.sha256(f"{seed}/{axis}".encode()).digest() for axis in range(dimensions))
    return [int.from_bytes(digest[:4], "big") for digest in digests]


@functools.cache
def _directions() -> Sequence[Sequence[int]]:
    """For each dimension the numbers of its bits."""
    first = [1 << (_BITS - 1 - bit) for bit in range(_BITS)]
    return [
        first,
        *(_extend_directions(list(map(int, line.split()))) for line in TABLE.splitlines()),
    ]


def _extend_directions(line: Sequence[int]) -> Sequence[int]:
    """All direction numbers of a dimension, from its polynomial and initial numbers."""
    polynomial, initial = line[0], line[1:]
    degree = len(initial)
    found = [number << (_BITS - 1 - bit) for bit, number in enumerate(initial)]
    for bit in range(degree, _BITS):
        value = found[bit - degree] ^ found[bit - degree] >> degree
        for back in range(1, degree):
            if polynomial >> (degree - back) & 1:
                value ^= found[bit - back]
        found.append(value)
    return found
