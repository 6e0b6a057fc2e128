"""Requests that are known by their bytes differ from an earlier one in their values only, and there is a bound to them."""  # noqa: E501

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.serving.codecs.layouts import ALIKE, LONGEST, MOST, Layouts

BODY = b"head....between..tail"
SPANS = [(15, 17), (4, 8)]  # in the order in which the plan wants them


def knowing() -> Layouts[str]:
    layouts: Layouts[str] = Layouts()
    layouts.learn(BODY, SPANS, "plan")
    return layouts


@given(st.binary(min_size=4, max_size=4), st.binary(min_size=2, max_size=2))
def test_other_values_are_found_in_the_order_of_the_plan(first: bytes, second: bytes) -> None:
    body = b"head" + first + b"between" + second + b"tail"
    found = knowing().find(body)
    assert found is not None
    assert found.plan == "plan"
    assert found.values(body) == [second, first]


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_a_request_that_differs_elsewhere_is_not_known(place: int, change: int) -> None:
    other = BODY[:place] + bytes([BODY[place] ^ change]) + BODY[place + 1 :]
    within = any(start <= place < end for start, end in SPANS)
    assert (knowing().find(other) is not None) == within
    assert knowing().find(BODY + b"\0") is None
    assert knowing().find(BODY[:-1]) is None


def test_values_that_a_decoder_refuses_are_not_known() -> None:
    layouts: Layouts[str] = Layouts()
    layouts.learn(BODY, SPANS, "plan", [lambda data: data[::-1] if data != b"no" else None, None])
    good, bad = b"headabcdbetweenxytail", b"headabcdbetweennotail"
    found = layouts.find(good)
    assert found is not None
    assert found.values(good) == [b"yx", b"abcd"]
    found = layouts.find(bad)
    assert found is not None
    assert found.values(bad) is None


def test_there_is_a_bound_to_what_is_kept() -> None:
    layouts: Layouts[int] = Layouts()
    for size in range(1, 3 * MOST):
        layouts.learn(b"x" * size, [(0, 1)], size)
    assert sum(layouts.find(b"x" * size) is not None for size in range(1, 3 * MOST)) <= MOST


def test_there_is_a_bound_to_the_layouts_of_one_length_which_those_in_use_survive() -> None:
    layouts: Layouts[int] = Layouts()
    bodies = [number.to_bytes(4, "big") + b"...." for number in range(3 * ALIKE)]
    for number, body in enumerate(bodies):
        assert layouts.has_room(8) == (number < ALIKE)
        layouts.learn(body, [(4, 8)], number)
        assert layouts.find(bodies[0]) is not None
    assert sum(layouts.find(body) is not None for body in bodies) == ALIKE


def test_what_is_long_beside_its_values_is_not_kept() -> None:
    layouts: Layouts[int] = Layouts()
    layouts.learn(b"x" * (LONGEST + 2), [(0, 1)], 1)
    assert layouts.find(b"x" * (LONGEST + 2)) is None
