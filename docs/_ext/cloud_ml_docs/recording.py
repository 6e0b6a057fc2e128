"""Record a terminal session with a real server, for the documentation: ``make record``.

Everything shown is what a terminal got: a pseudo-terminal for each command, a server in a folder of
its own that is gone afterwards. Written are ``_static/session.cast``, which asciinema plays, and
for each scene ``_static/session-SCENE.svg``, the screen at its end; that of the first scene moves.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path

COLUMNS, ROWS = 100, 40
LONGEST_PAUSE_S = 1.2
OUT = Path(__file__).parents[2] / "_static"
CLOUDML = Path(sys.executable).parent / "cloudml"
TRAIN = """import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--out", type=pathlib.Path)
options, w = parser.parse_args(), 0.0
for epoch in range(1, options.epochs + 1):
    w += (2.0 - w) / 2
    print(f"epoch {epoch}: w = {w:.3f}, loss = {(2.0 - w) ** 2:.4f}", flush=True)
    time.sleep(0.7)
if options.out:
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "weight.txt").write_text(f"{w}\\n")
"""
GREEDY = """print("loading everything into memory", flush=True)
data = b"x" * 230_000_000
print("trained on", len(data) // 1_000_000, "MB")
"""
SCENES = {
    "submit": [
        "cloudml jobs submit . --watch -- --epochs 4 --out=fds://cloudml/linear",
        "cloudml storage cat fds://cloudml/linear/weight.txt",
        "cloudml jobs submit greedy.py -M 100M --watch",
        "cloudml jobs rerun greedy -M 200M --watch",
    ],
    "look": [
        "cloudml jobs describe greedy",
        "cloudml jobs submit . -n longer -M 100M -- --epochs 1000",
        "cloudml jobs top --once",
        "cloudml jobs list",
        "cloudml storage ls -r fds://cloudml/linear/",
    ],
    "mistakes": [
        "cloudml jobs submit . -M 100MB",
        "cloudml jobs submit . --epochs 4",
        "cloudml jobs cancel longer linaer",
        "cloudml jobs wait longer; echo $?",
        "cloudml --endpoint http://127.0.0.1:9 jobs list",
    ],
}
"""What is typed; each scene has a picture of its own."""
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341"}


class Recording:
    """What a terminal got, with times from which long pauses are taken out."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        self._clock = 0.0
        self._last = time.monotonic()

    def add(self, text: str, pause_s: float | None = None) -> None:
        now = time.monotonic()
        self._clock += min(now - self._last, LONGEST_PAUSE_S) if pause_s is None else pause_s
        self._last = now
        self.events.append((round(self._clock, 3), text))

    def type(self, command: str) -> None:
        self.add("\x1b[32m$\x1b[0m ", 0.6)
        for letter in command:
            self.add(letter, 0.03)
        self.add("\r\n", 0.3)

    def cast(self) -> str:
        header = {
            "version": 2,
            "width": COLUMNS,
            "height": ROWS,
            "title": "Cloud ML on the command line",
        }
        return (
            "\n".join(
                json.dumps(line)
                for line in [header, *([at, "o", text] for at, text in self.events)]
            )
            + "\n"
        )

    def svg(self) -> str:
        """The screen at the end."""
        rows = [
            (0.0, None, number, row)
            for number, row in enumerate(map(_spans, self._screen(len(self.events))))
        ]
        return _picture(rows)

    def moving(self) -> str:
        """The screen as it changed, once, from the moment when half of it is filled; it stops at
        its end.

        Readers who want no motion see the end at once.
        """
        rows: list[_Row] = []
        shown: dict[int, tuple[float, str]] = {}
        for count, (at, _) in enumerate(self.events, 1):
            lines = [_spans(line) for line in self._screen(count)]
            for number in range(max(len(lines), len(shown))):
                row = lines[number] if number < len(lines) else ""
                since, before = shown.get(number, (at, ""))
                if row != before:
                    if before and at > since:
                        rows.append((since, at, number, before))
                    shown[number] = (at, row)
        rows += [(since, None, number, row) for number, (since, row) in shown.items()]
        return _picture(_from(rows, self._half_filled_s()))

    def _half_filled_s(self) -> float:
        """When half of the lines are there: a picture that begins earlier begins as an empty
        box.
        """
        half = len(self._screen(len(self.events))) / 2
        return next(
            (
                at
                for count, (at, _) in enumerate(self.events, 1)
                if len(self._screen(count)) >= half
            ),
            0.0,
        )

    def _screen(self, count: int) -> list[list[tuple[str, str]]]:
        return screen("".join(text for _, text in self.events[:count]))


_Row = tuple[float, float | None, int, str]
"""From when, until when, at which line, what."""


_STYLE = """text { white-space: pre }
.now { visibility: hidden }
@media (prefers-reduced-motion: no-preference) {
  .now { animation-name: seen }
  .later { animation-name: unseen }
}
@keyframes seen { from, to { visibility: visible } }
@keyframes unseen { from, to { visibility: hidden } }"""
"""A row ``now`` is seen for a while, and never without motion; a row ``later`` is unseen at
first, and stays then.
"""


def _from(rows: list[_Row], start: float) -> list[_Row]:
    moved = [
        (max(0.0, since - start), until and until - start, number, row)
        for since, until, number, row in rows
    ]
    return [row for row in moved if row[1] is None or row[1] > 0]


def _picture(rows: list[_Row]) -> str:
    height = 17 * (max(number for _, _, number, row in rows if row) + 1) + 30
    drawn = []
    for since, until, number, row in rows:
        if until is not None:
            timing = f' class="now" style="animation-delay: {since:.2f}s; animation-duration: {until - since:.2f}s"'
        else:  # the last picture is there without any timing, for viewers that know none
            timing = f' class="later" style="animation-duration: {since:.2f}s"' if since else ""
        if row:
            drawn.append(f'<text x="14" y="{25 + 17 * number}"{timing}>{row}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * 8 + 28} {height}" '
        'font-size="13.3" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" fill="#c9d1d9">\n'
        f"<style>{_STYLE}</style>\n"
        '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def screen(text: str) -> list[list[tuple[str, str]]]:
    """The lines that are left on a terminal, as letters with their colours. Knows what our
    commands send.
    """
    lines: list[list[tuple[str, str]]] = [[]]
    column, colour, at = 0, "", 0
    while at < len(text):
        if control := _CONTROL.match(text, at):
            at = control.end()
            if control[2] == "K":
                del lines[-1][column:]
            elif control[2] == "m":
                colour = _COLOURS.get(control[1], "")
            continue
        letter, at = text[at], at + 1
        if letter == "\r":
            column = 0
        elif letter == "\n" or column >= COLUMNS:
            lines.append([])
            column = 0
        if letter not in "\r\n":
            lines[-1][column : column + 1] = [(letter, colour)]
            column += 1
    return lines


def _spans(line: list[tuple[str, str]]) -> str:
    shown, before = "", ""
    for letter, colour in line:
        if colour != before:
            shown += ("</tspan>" if before else "") + (f'<tspan fill="{colour}">' if colour else "")
            before = colour
        shown += escape(letter)
    return shown + ("</tspan>" if before else "")


def play(command: str, recording: Recording, folder: Path, environment: dict[str, str]) -> None:
    """Run one command line on a terminal."""
    if " top" in command:
        time.sleep(2)  # until there is something to see
    recording.type(command)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(
        ["sh", "-c", command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment,
    ) as process:
        os.close(theirs)
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the command has ended
                break
            recording.add(chunk.decode())
        process.wait()
    os.close(ours)


def joined(scenes: Iterable[Recording]) -> Recording:
    """One recording after the other."""
    whole, begin = Recording(), 0.0
    for scene in scenes:
        whole.events += [(round(begin + at, 3), text) for at, text in scene.events]
        begin = whole.events[-1][0]
    return whole


def main() -> None:
    """Start a server, play the session, write the files."""
    scenes: dict[str, Recording] = {}
    with tempfile.TemporaryDirectory() as work:
        home, folder = Path(work) / "home", Path(work) / "linear"
        Path(work).chmod(0o755)
        folder.mkdir()
        home.mkdir()
        (folder / "train.py").write_text(TRAIN)
        (folder / "greedy.py").write_text(GREEDY)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CLOUDML_", "XDG_"))
        }
        environment = kept | {
            "HOME": str(home),
            "TERM": "xterm-256color",
            "PYTHONIOENCODING": "utf-8",
            "PATH": f"{CLOUDML.parent}:{os.environ['PATH']}",
            "CLOUDML_ENGINE_USAGE_PERIOD_S": "0.5",
        }
        server = subprocess.Popen(
            [CLOUDML, "server", "--data-dir", f"{work}/data", "--port", "0"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            while "Ctrl-C" not in server.stdout.readline():
                pass
            for name, commands in SCENES.items():
                scenes[name] = Recording()
                for command in commands:
                    play(command, scenes[name], folder, environment)
        finally:
            subprocess.run(
                [CLOUDML, "jobs", "cancel", "longer"],
                env=environment,
                capture_output=True,
                check=False,
            )
            server.terminate()
            server.wait()
            shutil.rmtree(f"{work}/data", ignore_errors=True)
    OUT.mkdir(exist_ok=True)
    (OUT / "session.cast").write_text(joined(scenes.values()).cast())
    for name, scene in scenes.items():
        (OUT / f"session-{name}.svg").write_text(
            scene.moving() if name == "submit" else scene.svg()
        )


if __name__ == "__main__":
    main()
