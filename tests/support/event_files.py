"""A trainer that writes TensorBoard event files with nothing but the standard library."""

from __future__ import annotations

_RECORDS = """
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def part(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(data):
    length = struct.pack("<Q", len(data))
    checked = [struct.pack("<I", crc32c(one)) for one in (length, data)]
    return length + checked[0] + data + checked[1]
"""
"""What frames records of event files."""

TUNED = (
    """
import argparse, os, struct

parser = argparse.ArgumentParser()
parser.add_argument("--max_epochs", type=int, default=1)
parser.add_argument("--output_path", required=True)
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--optimizer", default="sgd")
arguments = parser.parse_args()
"""
    + _RECORDS
    + """

os.makedirs(arguments.output_path, exist_ok=True)
with open(os.path.join(arguments.output_path, "events.out.tfevents.1.host"), "wb") as file:
    for step in range(0, 20001, 10000):
        metric = abs(arguments.learning_rate - 0.2) + (arguments.optimizer == "ftrl") + 1 / (step + 1)
        value = part(1, b"training/hptuning/metric") + b"\\x15" + struct.pack("<f", metric)
        event = b"\\x09" + struct.pack("<d", float(step)) + b"\\x10" + varint(step)
        file.write(record(event + part(5, part(1, value))))
"""
)
"""Writes the objective of the original platform: 0.1 apart for the best learning rate."""

SLIDE = {
    "job_name": "linear37",
    "module_name": "trainer.task",
    "job_args": "--max_epochs 5000",
    "cpu_limit": "0.5",
    "memory_limit": "100M",
    "framework": "python",
    "hyperparameters": {
        "goal": "MINIMIZE",
        "output_path": "fds://cloudml/linear_output37",
        "params": [
            {"optimizer": "ftrl", "learning_rate": 0.1},
            {"optimizer": "ftrl", "learning_rate": 0.5},
            {"optimizer": "sgd", "learning_rate": 0.1},
            {"optimizer": "sgd", "learning_rate": 0.5},
        ],
    },
}
"""The request of the slide, without the URI of its trainer."""

EVENT_WRITER = (
    """
import os, struct, time
"""
    + _RECORDS
    + """

def event(step, rest):
    return record(b"\\x09" + struct.pack("<d", 1000.0 + step) + b"\\x10" + varint(step) + rest)


def scalar(tag, value, step):
    inner = part(1, tag.encode()) + b"\\x15" + struct.pack("<f", value)
    return event(step, part(5, part(1, inner)))


def tensor(tag, value, step):
    content = b"\\x08\\x01\\x12\\x00\\x22\\x04" + struct.pack("<f", value)
    plugin = part(1, part(1, b"scalars"))
    return event(step, part(5, part(1, part(1, tag.encode()) + part(8, content) + part(9, plugin))))


def summary(tag, field, content, step, plugin=""):
    rest = part(field, part(8, content) if field == 8 else content)
    rest += part(9, part(1, part(1, plugin.encode()))) if plugin else b""
    return event(step, part(5, part(1, part(1, tag.encode()) + rest)))


def start(step):
    return event(step, part(7, b"\\x08\\x01"))


def opened(folder, stamp=1, host="host"):
    os.makedirs(folder, exist_ok=True)
    file = open(os.path.join(folder, "events.out.tfevents.%010d.%s" % (stamp, host)), "ab", 0)
    file.write(record(b"\\x09" + struct.pack("<d", 1000.0) + b"\\x1a\\x0dbrain.Event:2"))
    return file
"""
)
"""What a trainer, or a test, needs to write event files: with nothing but the standard library."""
