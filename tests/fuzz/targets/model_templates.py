"""Requests of the Open Inference Protocol over REST that share what a server has learnt are
answered as if alone.
"""

from __future__ import annotations

import json
import random

from fuzz.harness import target
from fuzz.model_world import World

TENSORS = {
    "serving_default": {"x": ("FP32", 2)},
    "two": {"x": ("FP32", 2), "x2": ("FP32", 2)},
    "mixed": {"x": ("FP32", 2), "k": ("INT64", 0)},
    "slides": {"keys": ("INT32", 1), "X": ("FP32", 1)},
    "whole": {"a": ("INT8", 0), "b": ("UINT16", 0), "c": ("UINT32", 0), "d": ("UINT64", 0)},
    "truth": {"b": ("BOOL", 0)},
    "text": {"t": ("BYTES", 0)},
}
_ODD = (
    "[1]",
    '"1"',
    "true",
    "null",
    "1e400",
    "NaN",
    "-1",
    "300",
    "1e2",
    "{}",
    "18446744073709551615",
    "",
)
_PIECES = (
    '"data":[1]',
    '"data"',
    '"id":"y"',
    '"id"',
    '"name":"x"',
    "[",
    "]",
    '"',
    "\\",
    "\0",
    ",",
    ":",
    "{",
    "}",
    " ",
    '"parameters":{"id":"z"}',
    '"outputs":[{"name":"x_"}]',
    "é",
    "1",
)


def ask(world: World, body: bytes) -> bytes:
    """The status and the body that a caller gets; ids and errors as they are."""
    connection, transport = world.http1()
    connection.data_received(
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    world.loop.settle()
    head, _, answer = transport.written.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0] + b"\n" + answer


def _number(kind: str, luck: random.Random) -> str:
    if kind == "BYTES":
        return luck.choice(('"a"', '"data"', '"id"'))
    if kind == "BOOL":
        return luck.choice(("true", "false"))
    return str(luck.randint(0, 120)) + (luck.choice(("", ".5")) if kind == "FP32" else "")


def _object(members: list[str], luck: random.Random) -> str:
    luck.shuffle(members)
    return "{" + ",".join(members) + "}"


def request(luck: random.Random) -> str:
    """A request, most often a good one."""
    name = luck.choice(list(TENSORS))
    rows = luck.choice((1, 1, 2))
    inputs = []
    for key, (kind, width) in TENSORS[name].items():
        data = [_number(kind, luck) for _ in range(rows * (width or 1))]
        if luck.random() < 0.03:
            data[luck.randrange(len(data))] = luck.choice(_ODD)
        shape = f"{rows},{width}" if width else f"{rows}"
        colon = luck.choice((":", " : "))
        members = [
            f'"name":"{key}"',
            f'"datatype":"{kind}"',
            f'"shape":[{shape}]',
            f'"data"{colon}[{",".join(data)}]',
        ]
        inputs.append(_object(members, luck))
    luck.shuffle(inputs)
    signature = _object([f'"signature_name":"{name}"'], luck)
    members = [f'"inputs":[{",".join(inputs)}]', f'"parameters":{signature}']
    if luck.random() < 0.5:
        given = luck.choice(("", "a", "b c", "data", r"caf\u00e9"))
        members.append(f'"id":"{given}"')
    if luck.random() < 0.2:
        output = next(iter(TENSORS[name]))
        members.append('"outputs":[' + _object([f'"name":"{output}_"'], luck) + "]")
    return _object(members, luck)


def changed(text: str, luck: random.Random) -> str:
    """The same with a piece put in, or in the place of some characters; often only with another
    number.
    """
    if luck.random() < 0.5:
        places = [place for place, each in enumerate(text) if each.isdigit()]
        at = luck.choice(places) if places else 0
        return text[:at] + luck.choice(("7", "0.25", "12", "-3", *_ODD)) + text[at + 1 :]
    at = luck.randrange(len(text) + 1)
    return text[:at] + luck.choice(_PIECES) + text[at + luck.choice((0, 0, 1, 4)) :]


def parse_answer(answer: bytes) -> object:
    """An answer as a document, so that only its meaning counts."""
    status, _, text = answer.partition(b"\n")
    return status, json.loads(text)


@target(
    "serving.oip.templates", "serving.oip.infer",
    seeds=[b"\x01", b"\x02\x03", b"abc", b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],"id":"i"}'],
    words=['"data":[', '"id":"', "]", "[1,2]", '"inputs":[', "{", "}"],
)  # fmt: skip
def model_templates(data: bytes) -> None:
    """Every request gets the answer, or the error, that a server gives that has met no other."""
    luck = random.Random(data)
    texts = [request(luck) for _ in range(2)]
    texts += [changed(luck.choice(texts), luck) for _ in range(8)] + [luck.choice(texts)]
    bodies = [text.encode() for text in texts] + ([data, data] if data[:1] == b"{" else [])
    world = World()
    for body in bodies:
        answer = parse_answer(ask(world, body))
        assert answer == parse_answer(ask(World(), body)), body
        assert answer[0].split(b" ")[1] != b"500", (body, answer)
