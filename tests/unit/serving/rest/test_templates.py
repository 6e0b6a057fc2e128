"""Requests that differ from an earlier one in their numbers and their id only mean what they
say.
"""

from __future__ import annotations

import orjson
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs.json_documents import document
from cloud_ml.serving.oip import templates
from cloud_ml.serving.oip.templates import Plan, SplitDocument, Templates, split_document
from cloud_ml.serving.signatures import Signature, TensorSpec

KEYS, X = TensorSpec("keys", dtypes.INT32, (-1,)), TensorSpec("X", dtypes.FLOAT, (-1,))
BOTH = Signature("s", (KEYS, X), (KEYS,))
SHAPES = [(1,), (2,)]


class Call:
    deadline = 0.0
    seconds = 0.0

    def within(self, seconds: float) -> None:
        self.seconds = seconds


class World:
    """What was learnt, and what ran."""

    def __init__(self) -> None:
        self.templates = Templates()
        self.ran: list[tuple[str, list[bytes]]] = []

    def learn(self, body: bytes, signature: Signature = BOTH) -> SplitDocument:
        given = split_document(body)
        assert given is not None
        plan = Plan(
            lambda request, _: self.ran.append((request.form, request.tensors)), str, 1, (), 0.5
        )
        self.templates.learn("m", given, signature, SHAPES[-len(signature.inputs) :], plan)
        return given

    def asks(self, body: bytes, generation: int = 0) -> bool:
        """Whether a request is answered by what was learnt."""
        given = split_document(body)
        found = self.templates.find(generation, "m", given.around) if given is not None else None
        return given is not None and found is not None and found.run(Call(), given)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    made = World()
    made.templates.find(0, "m", ())
    return made


def body(keys: str = "[1]", x: str = "[1.5, 2]", request_id: str = "a") -> bytes:
    tensors = f'{{"name":"X","data":{x},"shape":[2]}},{{"data" : {keys},"name":"keys"}}'
    return f'{{"inputs":[{tensors}],"id":"{request_id}"}}'.encode()


def test_other_numbers_and_another_id_are_read_in_the_order_of_the_signature(world: World) -> None:
    world.learn(body())
    assert world.asks(body("[7]", "[3,-0.5]", "other"))
    keys, x = (7).to_bytes(4, "little"), bytes.fromhex("00004040000000bf")
    assert world.ran == [("other", [keys, x])]


@pytest.mark.parametrize(
    "odd",
    [
        body("[1,2]"), body("[]"), body("[1.0]"), body("[true]"), body('["1"]'), body("[null]"), body("[[1]]"),
        body("[3000000000]"), body("[1,]"), body("[1}"), body(x="[1,NaN]"), body(x="[1,{}]"), body(request_id='a\\"'),
        body(request_id="caf\u00e9"), body(request_id="a\n"), body() + b" ", body().replace(b"keys", b"kezs"),
    ],
    ids=lambda one: str(one)[11:80],
)  # fmt: skip
def test_what_is_not_certain_is_looked_at_closer(world: World, odd: bytes) -> None:
    world.learn(body())
    assert not world.asks(odd)
    assert world.ran == []


@pytest.mark.parametrize(
    "text",
    [
        # the first is another id
        b'{"inputs":[{"name":"x","data":[1,2]}],"parameters":{"id":"a"},"id":"b"}',
        b'{"inputs":[{"name":"x","data":[1,2]}],"parameters":{"data":[1,2]}}',
        b'{"inputs":[{"name":"x","data":[1,2],"data":[3,4]}]}',
        b'{"inputs":[{"name":"x","data":[1,2]}],"more":[{"name":"y","data":[1,2]}]}',
    ],
)
def test_lists_and_ids_in_other_places_are_not_learnt(world: World, text: bytes) -> None:
    x = TensorSpec("x", dtypes.FLOAT, (-1,))
    world.learn(text, Signature("s", (x,), (x,)))
    assert not world.asks(text)


def test_a_marker_cannot_be_guessed() -> None:
    assert document(b'{"a":1}') == orjson.loads(b'{"a":1}')
    given = split_document(body())
    assert given is not None
    filled = {templates._fill_document(given, secret, named=True) for secret in (1, 2)}
    assert len(filled) == 2


def test_other_models_forget_all_and_there_is_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.learn(body())
    assert world.asks(body())
    assert not world.asks(body(), generation=1)
    monkeypatch.setattr(templates, "MAX_TEMPLATES", 4)
    for number in range(20):
        world.learn(body().replace(b'"shape"', b'"shape%d"' % number))
        assert len(world.templates._known) <= 4
    world.templates.find(2, "m", ())
    world.learn(body().replace(b"shape", b"s" * templates.MAX_BYTES))
    assert world.templates._known == {}
