"""Tokens of calls: the page's vector, and that nothing else is believed."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud_ml.auth.tokens import Token, derived_key, make_token
from cloud_ml.domain.services.routes import CallingKey
from cloud_ml.errors import InvalidRequest
from cloud_ml.gateway import answers
from cloud_ml.gateway.access import Access, bearer

PAGE = (Path(__file__).parents[3] / "docs/reference/signatures.md").read_text()
SECRET, KEY, ENDS = "an example of a secret", "AKEXAMPLE", 1_800_000_000
TOKEN = make_token(KEY, SECRET, datetime.fromtimestamp(ENDS, UTC))


def access(now: float = ENDS - 60, longest_s: float = 3600, **key: object) -> Access:
    made = Access(longest_s, lambda: now)
    made.learn({KEY: CallingKey(**({"org": "mine", "key": derived_key(SECRET).hex()} | key))})  # type: ignore[arg-type]
    return made


def test_the_vector_of_the_page() -> None:
    assert f"`{TOKEN}`" in PAGE
    assert f"`{derived_key(SECRET).hex()}`" in PAGE


def test_the_page_makes_it_by_hand() -> None:
    lines = PAGE.partition("`:\n\n```console\n$ text=")[2].partition("```")[0].splitlines()
    script = "\n".join(["text=" + lines[0], *(line.removeprefix("$ ") for line in lines[1:])])
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert f"cmt1.{KEY}.{ENDS}.{ran.stdout.strip()}" == TOKEN


def test_who_is_believed() -> None:
    assert access().refusal(TOKEN, "mine", "linear/v1") is None
    assert access().refusal(TOKEN, "theirs", "linear/v1") is answers.FOREIGN
    assert access().refusal("", "mine", "linear/v1") is answers.MISSING
    assert access(now=ENDS).refusal(TOKEN, "mine", "linear/v1") is answers.WRONG, "it has ended"
    assert access(now=ENDS - 3601).refusal(TOKEN, "mine", "linear/v1") is answers.WRONG, (
        "it lasts too long"
    )
    assert access(expires=ENDS - 60).refusal(TOKEN, "mine", "linear/v1") is answers.WRONG, (
        "its key has ended"
    )
    assert access(key="00" * 32).refusal(TOKEN, "mine", "linear/v1") is answers.WRONG, (
        "its key has another secret now"
    )


@pytest.mark.parametrize("key", [KEY, "AK.1.b", f"{KEY}.1.linear"])
def test_a_token_for_one_service_opens_that_one(key: str) -> None:
    narrow = make_token(key, SECRET, datetime.fromtimestamp(ENDS, UTC), service="linear/v1.2")
    checked = Access(3600, lambda: ENDS - 60)
    checked.learn({key: CallingKey("mine", derived_key(SECRET).hex())})
    assert checked.refusal(narrow, "mine", "linear/v1.2") is None
    assert checked.refusal(narrow, "mine", "linear/v1") is answers.NARROW
    assert checked.refusal(narrow, "mine", "other/v1.2") is answers.NARROW
    assert checked.refusal(narrow, "theirs", "linear/v1.2") is answers.FOREIGN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("linear/v1", "linear/v2"),
        ("linear/v1.", ""),
        ("cmt2", "cmt1"),
        (".linear/v1", ""),
        ("1800000000", "1800000001"),
    ],
)
def test_a_narrow_token_cannot_be_widened(old: str, new: str) -> None:
    narrow = make_token(KEY, SECRET, datetime.fromtimestamp(ENDS, UTC), service="linear/v1")
    for service in ("linear/v1", "linear/v2", ""):
        assert access().refusal(narrow.replace(old, new), "mine", service) is answers.WRONG


@pytest.mark.parametrize(
    "service",
    ["linear", "linear/", "/v1", "a/b/c", "a.b/c", "LINEAR/v1", "a b/c", "x" * 64 + "/v1"],
)
def test_a_service_that_is_none_gets_no_token(service: str) -> None:
    with pytest.raises(InvalidRequest, match="service"):
        make_token(KEY, SECRET, datetime.fromtimestamp(ENDS, UTC), service=service)


def test_what_was_believed_ends_with_its_time_and_its_key() -> None:
    now = [float(ENDS - 60)]
    checked = Access(3600, lambda: now[0])
    keys = {KEY: CallingKey("mine", derived_key(SECRET).hex(), ENDS - 30)}
    checked.learn(keys)
    assert checked.refusal(TOKEN, "mine", "linear/v1") is None
    now[0] = ENDS - 30
    assert checked.refusal(TOKEN, "mine", "linear/v1") is answers.WRONG, (
        "the key ended before the token"
    )
    now[0] = ENDS - 60
    assert checked.refusal(TOKEN, "mine", "linear/v1") is None
    checked.learn({})
    assert checked.refusal(TOKEN, "mine", "linear/v1") is answers.WRONG, "the key was disabled"


@pytest.mark.parametrize("place", range(len(TOKEN)))
def test_no_character_may_differ(place: int) -> None:
    other = "x" if TOKEN[place] != "x" else "y"
    if place == len(TOKEN) - 1:
        other = ""  # the last character has bits that say nothing; without it, it is none
    assert (
        access().refusal(TOKEN[:place] + other + TOKEN[place + 1 :], "mine", "linear/v1")
        is answers.WRONG
    )


def test_what_is_no_token() -> None:
    for text in (
        "cmt1...",
        "cmt1.a.1." + "x" * 42,
        "cmt2" + TOKEN[4:],
        TOKEN + "\n",
        "cmt1.\u0661.1." + "x" * 43,
    ):
        assert Token.read(text) is None
    assert bearer(f"bearer  {TOKEN}") == TOKEN
    assert bearer(f"Basic {TOKEN}") == bearer("") == bearer("Bearer") == ""
    with pytest.raises(InvalidRequest, match="access_key"):
        make_token("a b", SECRET, datetime.fromtimestamp(ENDS, UTC))
