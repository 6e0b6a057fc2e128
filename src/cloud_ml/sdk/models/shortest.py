"""Numbers of single precision, written as people and JSON write them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

_SMALLEST = 2.0**-126
"""Below it a number has fewer digits, down to one."""


def shortest(values: Sequence[float]) -> list[float]:
    """For each float32 the number with the fewest decimal digits that reads back as the same
    float32.

    29.955245971679688 becomes 29.955246. It costs a microsecond a value.
    """
    found = list(values)
    left = [place for place, value in enumerate(found) if abs(value) >= _SMALLEST or not value]
    # %g writes no zeros at the end, so 6 stands for all numbers up to 6 digits. It goes first: 7
    # digits may find a closer number that is longer, since near 9.99 they are finer than a float32.
    for digits in (6, 7, 8):
        left = _try_digits(values, found, left, digits)
    for place in left:
        found[place] = _of_nine_digits(values[place])
    left = [place for place, value in enumerate(values) if 0 < abs(value) < _SMALLEST]
    for digits in range(1, 10):
        left = _try_digits(values, found, left, digits)
    return found


def _of_nine_digits(value: float) -> float:
    """What eight digits did not do for. Above a power of two there is more room than below:
    there they may yet do.
    """
    if math.frexp(value)[0] in (-0.5, 0.5):
        above = float(f"{value * (1 + 2**-25):.8g}")
        if struct.pack("<f", above) == struct.pack("<f", value):
            return above
    return float(f"{value:.9g}")


def _try_digits(
    values: Sequence[float], found: list[float], places: Sequence[int], digits: int
) -> list[int]:
    """Write down those for which so many digits are enough; returns the others."""
    made = [float(f"{values[place]:.{digits}g}") for place in places]
    form = f"<{len(made)}f"
    left = []
    for place, text, read in zip(
        places, made, struct.unpack(form, struct.pack(form, *made)), strict=True
    ):
        if read == values[place]:
            found[place] = text
        else:
            left.append(place)
    return left
