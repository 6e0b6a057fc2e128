"""A person's own script fails in six ways, each answer names the cause and the way out, and then
it works.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.server import Ran, RealServer

SCRIPT = """\
import argparse
import csv
import json
import math
from pathlib import Path

from metrics import mean


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--data", default="data/churn.csv")
    args = parser.parse_args()
    with open(args.data) as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    weight = 0.0
    for epoch in range(args.epochs):
        errors = [weight * x - y for x, y in rows]
        loss = mean([error * error for error in errors])
        if not math.isfinite(loss):
            raise FloatingPointError(f"loss is {loss} in epoch {epoch}")
        weight -= args.lr * mean([2 * x * (weight * x - y) for x, y in rows])
        print(f"epoch {epoch}: loss {loss:.4f}")
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/model.json").write_text(json.dumps({"weight": weight}))


if __name__ == "__main__":
    main()
"""
METRICS = "def mean(values):\n    return sum(values) / len(values)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as people have it."""
    for name, text in (
        ("train.py", SCRIPT),
        ("metrics.py", METRICS),
        ("data/churn.csv", "1,2\n2,4\n3,6\n"),
    ):
        file = tmp_path / "churn" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "churn"


def submit(server: RealServer, folder: Path, name: str, arguments: str, *options: str) -> Ran:
    """What a person types in the folder."""
    words = [
        "jobs",
        "submit",
        "-n",
        name,
        "-m",
        "train",
        *options,
        "-W",
        ".",
        "--",
        *arguments.split(),
    ]
    return server.cli(*words, folder=folder)


def column(table: str, job: str, name: str) -> str:
    """The cell of a job in a column of a table."""
    header, *lines = table.splitlines()
    (line,) = [line for line in lines if line.split()[0] == job]
    begin = header.index(name)
    return line[begin:].split("  ")[0].strip()


@pytest.mark.parametrize(
    ("name", "change", "arguments", "code", "expected"),
    [
        ("module", ("import csv", "import csv\nimport bs4"), "", 1,
         ["ModuleNotFoundError: No module named 'bs4' (train.py, line 3)",
          'add the line "beautifulsoup4" to requirements.txt']),
        ("argument", ("", ""), "--epoch-count 3", 2,
         ["unrecognized arguments: --epoch-count 3", "did you mean --epochs?"]),
        ("path", ("", ""), "--data data/chrun.csv", 1,
         ["FileNotFoundError", "'data/chrun.csv' (train.py, line 16)", "the working directory is /",
          "did you mean data/churn.csv?"]),
        ("syntax", ("    weight = 0.0", "    weight = = 0.0"), "", 1,
         ["SyntaxError: invalid syntax (train.py, line 18)"]),
        ("nan", ("", ""), "--lr 1e100 --epochs 9", 1,
         ["FloatingPointError: loss is inf in epoch 2 (train.py, line "
          "23)", "lower the learning rate"]),
    ],
)  # fmt: skip
def test_the_verdict_names_the_cause_and_the_way_out(
    server: RealServer,
    folder: Path,
    name: str,
    change: tuple[str, str],
    arguments: str,
    code: int,
    expected: list[str],
) -> None:
    (folder / "train.py").write_text(SCRIPT.replace(*change))
    ran = submit(server, folder, f"wrong-{name}", arguments)
    assert ran.code == code, ran.out + ran.err
    verdict = ran.err[ran.err.index(f"wrong-{name} failed") :]
    assert [words for words in expected if words not in verdict] == [], verdict
    assert "Traceback" not in verdict


def test_too_much_memory_names_the_limit_and_the_command_that_raises_it(
    server: RealServer, folder: Path
) -> None:
    if server.client().server_info().isolation["limits"] == "none":
        pytest.skip("no control groups here")
    (folder / "train.py").write_text(
        SCRIPT.replace("weight = 0.0", "weight = len(bytearray(1 << 30))")
    )
    ran = submit(server, folder, "wrong-memory", "", "-M", "50M")
    assert ran.code == 3
    assert "OOMKilled: 50M" in ran.err
    assert "cloudml jobs rerun wrong-memory -M 100M" in ran.err


def test_two_runs_are_compared_in_the_list(server: RealServer, folder: Path) -> None:
    submit(server, folder, "right-one", "--lr 0.05 --epochs 4").good()
    submit(server, folder, "right-two", "--lr 0.1 --epochs 2").good()
    failed = submit(server, folder, "right-not", "--lr 0.1 --epoch-count 2")
    assert failed.code == 2
    wide = server.cli("jobs", "list", "--name", "right-*", "-o", "wide").good().out
    cells = {
        name: [
            column(wide, f"right-{name}", header)
            for header in ("STATE", "REASON", "EXIT CODE", "ARGUMENTS")
        ]
        for name in ("one", "two", "not")
    }
    assert cells == {
        "one": ["Succeeded", "", "0", "--lr 0.05 --epochs 4"],
        "two": ["Succeeded", "", "0", "--lr 0.1 --epochs 2"],
        "not": ["Failed", "NonZeroExit", "2", "--lr 0.1 --epoch-count 2"],
    }
    durations = [column(wide, f"right-{name}", "DURATION") for name in ("one", "two", "not")]
    assert all(duration.endswith((" s", " ms")) for duration in durations)
    plain = server.cli("jobs", "list", "--name", "right-*").good().out
    assert column(plain, "right-not", "REASON") == "NonZeroExit"


def test_a_place_that_does_not_exist_is_refused_before_the_job_runs(
    server: RealServer, folder: Path
) -> None:
    uploaded = server.cli("storage", "ls", "-r", "-o", "name", "fds://cloudml/.trainers/").out
    (folder / "new.txt").write_text("this makes the code another one")
    refused = submit(server, folder, "wrong-place", "--data=fds://cloudm/churn.csv")
    assert (
        server.cli("storage", "ls", "-r", "-o", "name", "fds://cloudml/.trainers/").out == uploaded
    )
    assert refused.code == 1
    assert "--data is fds://cloudm/churn.csv, but there is no bucket cloudm" in refused.err
    assert "Did you mean cloudml?" in refused.err
    assert "wrong-place" not in server.cli("jobs", "list", "-o", "name").out.split()
    ran = submit(server, folder, "wrong-place", "--data=fds://cloudm/churn.csv", "--no-check-uris")
    assert "cloudml storage ls fds://cloudm/" in ran.err


def test_what_tensorflow_does_not_have_any_more_is_named_before_anything_is_installed(
    server: RealServer, folder: Path
) -> None:
    (folder / "train.py").write_text(
        "import tensorflow as tf\nimport tensorflow.contrib.slim as slim\ntf.Session()\n"
    )
    ran = submit(server, folder, "wrong-slim", "")
    assert ran.code == 3
    assert (
        "TrainerInvalid: train.py:2 imports tf.contrib.slim, which is not offered: use tf.layers"
        in ran.err
    )


def test_code_for_python_2_is_named_before_it_runs_and_when_it_fails(
    server: RealServer, folder: Path
) -> None:
    (folder / "train.py").write_text(
        "print('start')\nfor number in xrange(3):\n    print(number)\n"
    )
    ran = submit(server, folder, "wrong-python", "")
    assert "cloudml: xrange in train.py:2: this is Python 2 code" in ran.out
    assert "NameError: name 'xrange' is not defined" in ran.err
    assert "(train.py, line 2); Python 3 has range instead" in ran.err
    events = server.cli("jobs", "events", "wrong-python").good().out.splitlines()
    (notice,) = [line for line in events if "EnvironmentNotice" in line]
    assert "xrange in train.py:2" in notice
    assert events.index(notice) < next(
        number for number, line in enumerate(events) if "Started" in line
    )
