"""Pictures of one submit for ``docs/performance.md``: its stages over all processes, and where the
server's time goes.

Run: ``python benchmarks/picture.py``. The second picture wants py-spy (``pip install py-spy``) and
is left as it is without.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from html import escape
from pathlib import Path

import job_start
from harness import STAMP, Server, median, serving, temporary_folder, train_job, upload, wheel

PLACE = Path(__file__).parent.parent / "docs" / "_static"
WIDTH, ROW, LEFT = 760, 18, 170
WHERE = {
    "queued": "API: checked, one commit", "starting": "controller: a place, one commit",
    "claimed": "supervisor: its claim",    "environment": "supervisor: the environment",
    "started": "supervisor: sandbox and limits", "user code": "Python starts",
}  # fmt: skip
_FONT = "font-family='sans-serif' font-size='12'"
_COLOURS = ("#4c78a8", "#72b7b2", "#54a24b", "#eeca3b", "#f58518", "#e45756")


def waterfall(steps: dict[str, float]) -> str:
    """Stages one below the other, each where the one before it ended."""
    scale = (WIDTH - LEFT - 90) / sum(steps.values())
    shapes, at = [], 0.0
    for number, (name, took) in enumerate(steps.items()):
        y, x = 8 + number * (ROW + 8), LEFT + at * scale
        shapes.append(
            f"<text x='0' y='{y + 13}' {_FONT}>{escape(WHERE[name])}</text>"
            f"<rect x='{x:.1f}' y='{y}' width='{max(1.0, took * scale):.1f}' height='{ROW}' "
            f"fill='{_COLOURS[number]}'/>"
            f"<text x='{x + took * scale + 5:.1f}' y='{y + 13}' {_FONT}>{took:.1f} ms</text>"
        )
        at += took
    return _svg(
        shapes,
        16 + len(steps) * (ROW + 8),
        f"From POST to the first line of user code: {at:.1f} ms",
    )


def flame(stacks: Counter[tuple[str, ...]]) -> str:
    """Functions over those they call, as wide as the time that they took."""
    total, shapes, deepest = sum(stacks.values()), list[str](), 0
    least = total / 400

    def draw(inside: Counter[tuple[str, ...]], x: float, depth: int) -> None:
        nonlocal deepest
        by_first: dict[str, Counter[tuple[str, ...]]] = {}
        for stack, count in inside.items():
            if stack:
                by_first.setdefault(stack[0], Counter())[stack[1:]] += count
        for name, below in sorted(by_first.items()):
            count = sum(below.values())
            if count >= least:
                deepest = max(deepest, depth)
                width = WIDTH * count / total
                label = escape(name.partition(" (")[0])
                shown = label if len(label) * 5.5 < width else ""
                colour = f"hsl({18 + sum(map(ord, name)) % 34},80%,{68 + depth % 3 * 5}%)"
                shapes.append(
                    f"<g><title>{escape(name)}: {100 * count / total:.1f} %</title><rect "
                    f"x='{x:.1f}' y='{depth * 16}' width='{width:.1f}' height='15' "
                    f"fill='{colour}'/><text x='{x + 2:.1f}' y='{depth * 16 + 11}' "
                    f"font-family='sans-serif' font-size='9'>{shown}</text></g>"
                )
                draw(below, x, depth + 1)
            x += WIDTH * count / total

    draw(stacks, 0, 0)
    return _svg(shapes, (deepest + 1) * 16, "CPU of the server while jobs are submitted and queued")


def _svg(shapes: list[str], height: int, title: str) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'>"
    back = f"<rect width='{WIDTH}' height='{height}' fill='#fff'/>"
    return f"{head}\n<title>{escape(title)}</title>\n{back}\n" + "\n".join(shapes) + "\n</svg>\n"


def sampled(server: Server, uri: str, jobs: int = 400) -> Counter[tuple[str, ...]] | None:
    """Stacks of the server's threads that are on a core while jobs are submitted; only what is
    ours below the loop.
    """
    program = shutil.which("py-spy") or shutil.which(
        "py-spy", path=str(Path(__file__).parents[1] / ".venv" / "bin")
    )
    if program is None:
        return None
    with tempfile.NamedTemporaryFile() as file:
        command = [
            program,
            "record",
            "-r",
            "250",
            "-d",
            "600",
            "-g",
            "-f",
            "raw",
            "-o",
            file.name,
            "-p",
        ]
        watching = subprocess.Popen(
            [*command, str(server.pids[0])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(1.5)
        calls = server.calls()
        for number in range(jobs):
            calls.submit(train_job(f"flame-{number}", uri))
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
        stacks: Counter[tuple[str, ...]] = Counter()
        for line in Path(file.name).read_text().splitlines():
            frames, _, count = line.rpartition(" ")
            stacks[_shortened(frames.split(";"))] += int(count)
        return stacks


def _shortened(frames: list[str]) -> tuple[str, ...]:
    """Without the way from the program's start to the loop, and without line numbers."""
    names = [frame.rpartition(":")[0] + ")" if ":" in frame else frame for frame in frames]
    start = next(
        (at for at, name in enumerate(names) if name.startswith(("Handle._run", "_WorkItem.run"))),
        0,
    )
    return tuple(names[start:])


def main() -> None:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=1) as server:
        uri = upload(server.client(), wheel(folder, STAMP))
        starts = job_start.measure(server, uri, "picture")
        (PLACE / "submit-stages.svg").write_text(
            waterfall({name: median(took) for name, took in starts.steps.items()})
        )
        (folder / "holds").mkdir()
        holds = upload(server.client(), wheel(folder / "holds", "import time; time.sleep(3600)\n"))
        server.calls().submit(train_job("holder", holds))
        stacks = sampled(server, uri)
        if stacks:
            (PLACE / "submit-flame.svg").write_text(flame(stacks))


if __name__ == "__main__":
    main()
