"""``python -m cloud_ml.tensorboard --unix_socket=NAME --name=RUN --folder=PATH …``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cloud_ml.tensorboard.run_folders import RunFolder, RunFolders

_RUNS = Path("runs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends the process."""
    options = _parser().parse_args(arguments)
    folders = [
        RunFolder(name, Path(path), each_child=name.endswith(_EACH))
        for name, path in zip(options.name, options.folder, strict=True)
    ]
    from cloud_ml.tensorboard.server import serve  # noqa: PLC0415 - takes a second

    serve(_log_folder(folders), options.unix_socket)


_EACH = "*"
"""The end of a name that stands for one run for each folder in a folder."""


def _log_folder(folders: Sequence[RunFolder]) -> Path:
    """The folder for TensorBoard: the only one, or one of links to all of them."""
    if len(folders) == 1 and not folders[0].name:
        return folders[0].path
    runs = RunFolders(_RUNS, folders)
    runs.make()
    runs.follow()
    return _RUNS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cloud_ml.tensorboard", allow_abbrev=False)
    parser.add_argument("--unix_socket", required=True, help="The socket to listen on.")
    parser.add_argument(
        "--name",
        action="append",
        required=True,
        help=f"The name of the runs of a folder; at the end {_EACH} for each folder in it.",
    )
    parser.add_argument("--folder", action="append", required=True, help="Where they are.")
    return parser


if __name__ == "__main__":
    main()
