"""``cloudml tensorboard``: what is said beside a URL."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cloud_ml.models import codec
from cloud_ml.models.tracking.tensorboard import OpenedTensorBoard, TensorBoard
from support.fake_api import START
from support.fake_server import Reply, Seen, json_reply

if TYPE_CHECKING:
    from support.fake_api import FakeApi
    from unit.cli.conftest import Run

URL = "http://tb-1.localhost:8472/-/cloudml/open?ticket=cat1.x"


@pytest.mark.parametrize(
    ("phase", "reason", "message", "note"),
    [
        ("Queued", "InsufficientCapacity", "4G of memory are free", "4G of memory are free"),
        ("Queued", "Submitted", "", ""),
        ("Running", "", "", ""),
    ],
)
def test_one_that_waits_for_room_says_so_when_it_is_opened(
    run: Run,
    api: FakeApi,
    monkeypatch: pytest.MonkeyPatch,
    *,
    phase: str,
    reason: str,
    message: str,
    note: str,
) -> None:
    board = TensorBoard(
        uid="u", name="big", org="default", owner="ann", phase=phase, revision=1,
        created_at=START, updated_at=START, reason=reason, message=message,
    )  # fmt: skip
    opened = OpenedTensorBoard(url=URL, expires_at=START, session_until=START + timedelta(hours=1))

    def on_tensorboards(seen: Seen, _name: str = "", _verb: str = "") -> Reply:
        return json_reply(codec.encode(opened if seen.method == "POST" else board))

    monkeypatch.setattr(api, "on_tensorboards", on_tensorboards, raising=False)
    result = run("tensorboard", "open", "big")
    assert result.stdout == f"{URL}\n"
    assert ("big waits for room" in result.stderr) is bool(note)
    assert note in result.stderr


def test_the_jobs_of_one_are_listed_without_the_signs_of_python(
    run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = TensorBoard(
        uid="u", name="big", org="default", owner="ann", phase="Running", revision=1,
        created_at=START, updated_at=START, jobs=["one", "two"],
    )  # fmt: skip
    reply = json_reply(codec.encode(board))
    monkeypatch.setattr(api, "on_tensorboards", lambda *_: reply, raising=False)
    lines = [
        line.split(maxsplit=1) for line in run("tensorboard", "describe", "big").stdout.splitlines()
    ]
    assert ["Jobs:", "one, two"] in lines
