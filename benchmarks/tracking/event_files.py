"""How fast event files are read, and with how much memory: our reader beside TensorBoard's own and
tbparse, on the same files. Run: ``python benchmarks/run.py tracking.event_files``
(EVENT_FILES_MB=20: smaller files).
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import Figure, median, temporary_folder
from peers.having import Absent, folder_of, version_of

from cloud_ml.tracking.crc32c import masked_crc32c

SIZE_MB = float(os.environ.get("EVENT_FILES_MB", "50"))
SMALL_MB, LARGE_MB = 100, 1000
"""Of the files for memory."""
ROUNDS = 2
"""Peers take a minute for each."""
_TARGET = 10.0
"""Our speed, as a multiple of a peer's."""
_MOST_MORE_MB = 2.0
"""So much more memory a file of ten times the size may take."""
_PEERS = {"tensorboard": "EventAccumulator of TensorBoard", "tbparse": "tbparse"}
_TAGS = [f"{part}/{name}" for part in ("train", "valid") for name in ("loss", "accuracy", "f1")]
_MB = 1e6


@dataclass(frozen=True)
class Answer:
    """What a reader found in a file, and what that took."""

    points: int
    sum: float
    took_s: float
    peak_mb: float


def run() -> list[Figure]:
    readers = {"ours": Path(sys.executable), **_peer_pythons()}
    figures = []
    with temporary_folder() as folder:
        for kind, encode in (("TF1 and PyTorch", simple_value), ("TF2", tensor_value)):
            figures += _speeds(folder, kind, encode, readers)
        return [*figures, _memory(folder)]


def _speeds(folder: Path, kind: str, encode: Encode, readers: dict[str, Path]) -> list[Figure]:
    file, short = folder / "events.out.tfevents.1.long", folder / "events.out.tfevents.2.short"
    write(short, encode, 0.01)
    points, total = write(file, encode, SIZE_MB)
    speeds: dict[str, list[float]] = {name: [] for name in readers}
    # By turns: other work on the machine slows all of them alike.
    for _ in range(ROUNDS):
        for name, python in readers.items():
            answer = ask(python, name, file, short)
            assert (answer.points, answer.sum) == (points, total), f"{name}: {answer}"
            speeds[name].append(file.stat().st_size / _MB / answer.took_s)
    ours = median(speeds.pop("ours"))
    what = f"event files of {kind}, read by one core"
    if not speeds:
        return [Figure(what, ours, "MB/s", 0, least=True)]
    return [
        Figure(what, ours, "MB/s", _TARGET * median(theirs), median(theirs),
               f"{_PEERS[name]} {version_of(name)}", least=True)
        for name, theirs in speeds.items()
    ]  # fmt: skip


def _memory(folder: Path) -> Figure:
    """Of a process that reads a large file, beside that of one that reads a small one."""
    peaks = []
    block, file = folder / "block", folder / "events.out.tfevents.3.large"
    points, _ = write(block, simple_value, 10)
    content = block.read_bytes()
    for size in (SMALL_MB, LARGE_MB):
        times = int(size * _MB / len(content))
        with file.open("wb") as out:
            for _ in range(times):
                out.write(content)
        answer = ask(Path(sys.executable), "count", file, block)
        assert answer.points == times * points, answer
        peaks.append(answer.peak_mb)
    small, large = peaks
    what = f"memory at its peak, an event file of {LARGE_MB / 1000:g} GB"
    return Figure(what, large, "MB", small + _MOST_MORE_MB, small, f"one of {SMALL_MB} MB")


def _peer_pythons() -> dict[str, Path]:
    """The interpreters of the peers that can be had here."""
    found = {}
    for peer in _PEERS:
        try:
            found[peer] = folder_of(peer) / "bin" / "python"
        except Absent as error:
            print(f"  {error}")
    return found


def ask(python: Path, reader: str, file: Path, short: Path) -> Answer:
    """What a reader in a process of its own says of a file; it reads a short one first."""
    driver = Path(__file__).with_name("event_readers.py")
    output = subprocess.run(
        [python, driver, reader, file, short], stdout=subprocess.PIPE, check=True
    ).stdout
    return Answer(**json.loads(output))


# ---- files, made here: what makes them must not be what reads them


Encode = Callable[[str, float], bytes]
"""The bytes of a value of a tag."""


def write(file: Path, encode: Encode, size_mb: float) -> tuple[int, float]:
    """Write a file of some size; returns how many points it has, and their sum."""
    chance, values, step = random.Random(1), list[float](), 0
    with file.open("wb") as out:
        out.write(FILE_HEAD)
        while out.tell() < size_mb * _MB:
            for tag in _TAGS:
                # A float32, as event files have them.
                value = struct.unpack("<f", struct.pack("<f", chance.gauss(1, 1)))[0]
                values.append(value)
                out.write(event(step, encode(tag, value)))
            step += 1
    return len(values), math.fsum(values)


def simple_value(tag: str, value: float) -> bytes:
    """As TensorFlow 1, PyTorch and tensorboardX write it."""
    return _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor_value(tag: str, value: float) -> bytes:
    """As TensorFlow 2 writes it: a tensor, and the plugin that shows it."""
    tensor = b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", value)
    plugin = _field(1, _field(1, b"scalars"))
    return _field(1, tag.encode()) + _field(8, tensor) + _field(9, plugin)


def event(step: int, value: bytes) -> bytes:
    """The record of a value at a step."""
    head = b"\x09" + struct.pack("<d", 1.7e9 + step / 10) + b"\x10" + _varint(step)
    return _record(head + _field(5, _field(1, value)))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    first, second = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + first + data + second


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


FILE_HEAD = _record(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2")
"""The first record of an event file."""
