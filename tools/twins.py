"""Make the synchronous face of the SDK from the asynchronous one: the same text without its
``await``.

::

    python tools/twins.py            # write
    python tools/twins.py --check    # exit 1, with the difference, if something is not as it would be written

A module below ``cloud_ml/aio`` that stands in ``TWINS`` is the original, the one in
``cloud_ml/sdk`` is made. What differs between the two worlds (connections, bodies, files) is
written twice, under the same names, and is not here.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "cloud_ml"
TWINS = {
    "aio/client.py": "client.py",
    **{
        f"aio/{name}.py": f"sdk/{name}.py"
        for name in (
            "admin/access_tokens",
            "admin/calls",
            "admin/quota",
            "ask_tell",
            "experiments",
            "http1",
            "jobs/calls",
            "jobs/follow",
            "jobs/handles",
            "jobs/outputs",
            "jobs/submission",
            "jobs/train_jobs",
            "models/deploying",
            "models/handles",
            "models/predicting",
            "models/services",
            "optuna",
            "resources",
            "logged_run",
            "model_registry",
            "outages",
            "runs",
            "runtimes",
            "secrets",
            "server",
            "storage/objects",
            "studies",
            "study_handle",
            "tensorboards",
            "transport",
            "waiting",
            "watching",
        )
    },
}

COPIES = {"job.py": "environments/compat/job/cloud_ml/job.py"}
"""Files that stand in a job's environment, too, word for word."""

_WORDS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bAbstractAsync(?=[A-Z])", "Abstract"),
    (r"__a(?=(enter|exit|iter|next)__)", "__"),
    (r"\baclosing\b", "closing"),
    (r"\banext\b", "next"),
    (r"\baclose\b", "close"),
    (r"\bcloud_ml\.aio\.client\b", "cloud_ml.client"),
    (r"\bcloud_ml\.aio import (?=CloudMlClient)", "cloud_ml.client import "),
    (r"\bcloud_ml\.aio\.", "cloud_ml.sdk."),
    (r"\bfrom several tasks\b", "from several threads"),
)


def made_from(text: str, original: str) -> str:
    """The synchronous text of an asynchronous module."""
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    text = _unwrapped(_unwrapped(text, r"(?<![\w)\]])\(await "), r"\bAwaitable\[").replace(
        "await ", ""
    )
    text = re.sub(r"\bfor (\w+) in ([^\n]+):\n\s+yield \1\n", r"yield from \2\n", text)
    head = f"# Made of {original} by tools/twins.py: change that one, then run `make format`.\n"
    return _in_form(head + text)


def _unwrapped(text: str, opening: str) -> str:
    """``text`` without each ``opening`` (a pattern that holds one bracket) and the bracket that
    closes it.
    """
    while (found := re.search(opening, text)) is not None:
        end = _closing(text, found.start())
        text = text[: found.start()] + text[found.end() : end] + text[end + 1 :]
    return text


def _closing(text: str, start: int) -> int:
    """Where the first bracket from ``start`` on is closed."""
    depth = 0
    for bracket in re.finditer(r"[][()]", text[start:]):
        depth += 1 if bracket[0] in "([" else -1
        if not depth:
            return start + bracket.start()
    raise ValueError(f"a bracket is not closed: {text[start : start + 80]}")


def _in_form(text: str) -> str:
    for step in (["check", "--select", "I,F401,UP034", "--fix-only", "-q"], ["format", "-q"]):
        command = [
            sys.executable,
            "-m",
            "ruff",
            *step,
            "--stdin-filename",
            str(PACKAGE / "sdk" / "twin.py"),
            "-",
        ]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, cwd=ROOT
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        text = done.stdout
    return text


def main() -> int:
    """Write or check every twin."""
    parser = argparse.ArgumentParser(
        description="Make the synchronous face of the SDK from the asynchronous one."
    )
    parser.add_argument(
        "--check", action="store_true", help="Only tell what is not as it would be written."
    )
    only_check = parser.parse_args().check
    wrong = 0
    for original, twin in {**TWINS, **COPIES}.items():
        expected = (PACKAGE / original).read_text("utf-8")
        if original in TWINS:
            expected = made_from(expected, original)
        path = PACKAGE / twin
        found = path.read_text("utf-8") if path.exists() else ""
        if found == expected:
            continue
        if only_check:
            wrong += 1
            lines = difflib.unified_diff(
                found.splitlines(True), expected.splitlines(True), twin, f"made of {original}"
            )
            sys.stdout.writelines(lines)
        else:
            path.write_text(expected, "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
