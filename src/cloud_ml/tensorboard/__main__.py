"""``python -m cloud_ml.tensorboard --unix_socket=NAME --name=RUN --folder=PATH …``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cloud_ml.tensorboard.mirror import Mirror
from cloud_ml.tensorboard.run_folders import RunFolder, RunFolders

_RUNS, _MIRROR = Path("runs"), Path("mirror")
_MIRROR_BYTES = "CLOUDML_MIRROR_BYTES"
"""Set where folders are copied, since they cannot be mounted."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends the process."""
    options = _parser().parse_args(arguments)
    paths = [Path(path) for path in options.folder]
    on_request: Callable[[], None] = lambda: None  # noqa: E731 - nothing is copied
    if limit := os.environ.get(_MIRROR_BYTES):
        mirror = Mirror(_MIRROR, len(paths), int(limit))
        mirror.start()
        paths, on_request = [mirror.folder(one) for one in range(len(paths))], mirror.note_request
    folders = [
        RunFolder(name, path, each_child=name.endswith(_EACH))
        for name, path in zip(options.name, paths, strict=True)
    ]
    from cloud_ml.tensorboard.server import serve  # noqa: PLC0415 - takes a second

    serve(_log_folder(folders), options.unix_socket, on_request)


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
