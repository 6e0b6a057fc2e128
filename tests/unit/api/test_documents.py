from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.api import documents
from cloud_ml.domain.tracking.runs import RunState
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import is_unicode
from cloud_ml.models.server import WhoAmI


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": 1, "a": 2}', "'a' is given twice"),
        (b'{"o": {"b": 1, "c": 2, "b": 3}}', "'b' is given twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1e999}', "beyond the range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "integer string conversion"),
        (b'{"a": "\xff"}', "codec can't decode"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b'{"\\udfff": 1}', "surrogates not allowed"),
        (b"[" * 40 + b"]" * 40, "nested more than 32"),
        (b"[" * 100_000, "nested more than 32"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested more than 32"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_readers_would_understand_differently_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        documents.read(body)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "document", [{}, [], 1, "ä€😀", {"a": [1.5, None, True, {"b": "x"}]}, None]
)
def test_ordinary_documents_are_read(document: object) -> None:
    assert documents.read(json.dumps(document).encode()) == document


def test_32_levels_are_fine() -> None:
    assert documents.read(b"[" * 32 + b"]" * 32)


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null"])
def test_a_body_is_an_object(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not an object"):
        documents.read_object(body)


def test_answers_are_one_line_of_utf8() -> None:
    answer = documents.answer(
        WhoAmI(org="北京", org_id="1", user="a\nb", role="admin", default_bucket="b")
    )
    text = '{"org":"北京","org_id":"1","user":"a\\nb","role":"admin","default_bucket":"b"'
    assert answer.body == f'{text},"keeps_git":true,"scopes":null}}'.encode()
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"]
)
def test_other_encodings_are_refused(encoding: str) -> None:
    """A reader in front of us would see other bytes, or none."""
    assert json.loads('{"a": 1}'.encode(encoding)) == {"a": 1}, "the standard library guesses"
    with pytest.raises(InvalidRequest, match="cannot be read as JSON"):
        documents.read('{"a": 1}'.encode(encoding))


_LEAVES = st.sampled_from([0, None, "", "[[[[", "ä", "\ud800", [], {}])
_NESTED = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("a\udfff", max_size=2), inner)
    ),
    max_leaves=8,
)


@given(_NESTED, st.integers(0, 40), st.booleans(), st.booleans())
def test_a_document_is_refused_exactly_if_a_walk_over_all_of_it_finds_why(
    document: Any, around: int, in_lists: bool, escaped: bool
) -> None:
    """Most documents are not walked through, because their bytes tell that it is not needed."""
    for _ in range(around):
        document = [document] if in_lists else {"a": document}
    body = json.dumps(document, ensure_ascii=escaped).encode(errors="surrogatepass")
    try:
        read = documents.read(body)
    except InvalidRequest:
        assert not _is_fine(document)
    else:
        assert _is_fine(document)
        assert read == document


def _is_fine(document: Any) -> bool:
    """Whether it is at most 32 levels deep, with whole characters."""
    level = [document]
    for _ in range(documents.MOST_LEVELS + 1):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper.extend(value)
                deeper.extend(value.values())
            elif isinstance(value, list):
                deeper.extend(value)
            elif isinstance(value, str) and not is_unicode(value):
                return False
        if not deeper:
            return True
        level = deeper
    return False


_NUMBERS = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 5e-324, 1e16, 1e-7, -0.0])
)
_WORDS = st.text() | st.sampled_from(
    ["NaN", "\x00\x1f\x7f\u2028\ufeff", '"\\/', "😀", RunState.KILLED]
)
_DOCUMENTS = st.recursive(
    _NUMBERS | _WORDS | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(_WORDS | st.integers(), inner),
    max_leaves=20,
)


@given(st.dictionaries(_WORDS, _DOCUMENTS) | st.lists(_DOCUMENTS))
def test_documents_of_numbers_are_those_of_the_standard_library(document: Any) -> None:
    quick = bytes(documents.answer_numbers(document).body)
    slow = bytes(documents.answer(document).body)
    assert repr(json.loads(quick)) == repr(json.loads(slow))  # -0.0 is not 0.0 here
    assert _in_one_form(quick) == _in_one_form(slow)


@pytest.mark.parametrize("value", [1e-5, 1e-4, 1e16, 1e17, -0.0, 0.1, 5e-324])
def test_a_number_is_the_same_in_both(value: float) -> None:
    quick = bytes(documents.answer_numbers([value]).body)
    assert repr(json.loads(quick)) == repr([value])


_STRINGS_AND_NUMBERS = re.compile(
    rb'"(?:[^"\\]|\\.)*"|(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)', re.DOTALL
)


def _in_one_form(body: bytes) -> bytes:
    """Each number that is not whole in one form of several: ``1e-05`` for ``1e-5`` and ``0.00001``."""

    def one_form(found: re.Match[bytes]) -> bytes:
        number = found[1]
        if number is None or number.lstrip(b"-").isdigit():
            return found[0]
        return repr(float(number)).encode()

    return _STRINGS_AND_NUMBERS.sub(one_form, body)
