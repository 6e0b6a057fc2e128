"""Writes ``locks/``: every package that each set of ours needs, with version and hashes, for all
Pythons and systems.

``make lock`` brings them in line with ``pyproject.toml`` and changes no more than that asks for;
``make lock RENEW=1`` takes the newest of everything. The widest set is resolved first and the
others within it, so they agree. No address of an index is written: a lock says what, a machine's
own settings say from where, hashes make sure that it is the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "locks"
OLDEST_PYTHON = "3.11"
_DEVELOP = ("build", "check", "docs", "test")

SETS: dict[str, tuple[tuple[str, ...] | None, tuple[str, ...]]] = {
    "all": (
        (
            "server",
            "postgres",
            "tuning",
            "serve",
            "serve-onnx",
            "fsspec",
            "tensorboard",
            "optuna",
            "optuna-samplers",
            "plot",
        ),
        (*_DEVELOP, "fuzz", "sbom"),
    ),
    "develop": (
        (
            "server",
            "postgres",
            "tuning",
            "serve",
            "serve-onnx",
            "fsspec",
            "optuna",
            "optuna-samplers",
            "plot",
        ),
        _DEVELOP,
    ),
    "postgres": (("server", "postgres"), ()),
    "server": (("server",), ()),
    "tuning": (("server", "tuning"), ()),
    "serve": (("serve",), ()),
    "serve-onnx": (("serve", "serve-onnx"), ()),
    "base": ((), ()),
    "build": (None, ("build",)),
    "uv": (None, ("uv",)),
}
"""Name of a lock → the extras (``None``: without the package's own needs) and groups in it. The
first holds all.
"""


def main() -> int:
    """Write them all."""
    parser = argparse.ArgumentParser(description="Bring locks/ in line with pyproject.toml.")
    parser.add_argument(
        "--renew",
        action="store_true",
        help="the newest versions, not those that were locked before",
    )
    renew = parser.parse_args().renew
    FOLDER.mkdir(exist_ok=True)
    for name, (extras, groups) in SETS.items():
        file = FOLDER / f"{name}.txt"
        within = [] if name == "all" else ["--constraint", "locks/all.txt"]
        before = file.read_text("utf-8") if file.exists() and not renew else ""
        file.write_text(_head(name) + _compiled(_chosen(extras, groups), within, before), "utf-8")
    return 0


def requirements(name: str) -> list[str]:
    """What ``pyproject.toml`` asks for in the set of that name, as it is written there."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras, groups = SETS[name]
    own = [] if extras is None else list(document["project"]["dependencies"])
    for extra in extras or ():
        own += document["project"]["optional-dependencies"][extra]
    return own + [one for group in groups for one in document["dependency-groups"][group]]


def _chosen(extras: tuple[str, ...] | None, groups: tuple[str, ...]) -> list[str]:
    options = [word for group in groups for word in ("--group", group)]
    return (
        options
        if extras is None
        else ["pyproject.toml", *options, *(f"--extra={extra}" for extra in extras)]
    )


def _compiled(chosen: list[str], within: list[str], before: str) -> str:
    """The text of one lock; versions that stand in ``before`` are preferred."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "lock.txt")
        draft.write_text(before, "utf-8")
        subprocess.run(
            [
                str(Path(sys.executable).with_name("uv")),
                "pip",
                "compile",
                *chosen,
                *within,
                "--universal",
                "--python-version",
                OLDEST_PYTHON,
                "--generate-hashes",
                "--no-header",
                "--no-annotate",
                "--no-emit-index-url",
                "--no-emit-find-links",
                "--quiet",
                "--output-file",
                str(draft),
            ],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return draft.read_text("utf-8")


def _head(name: str) -> str:
    return (
        f"# The set {name!r}, made of pyproject.toml by `make lock`. Not to be changed by hand.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
