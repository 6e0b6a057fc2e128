"""How many names a folder holds: each takes an inode of the disk, which has only so many."""

from __future__ import annotations

import os
from collections.abc import Callable

from cloud_ml.objects.local import tree

_ASK = 1024


def count_names(top: int, stop: Callable[[], bool]) -> int:
    """Names below an open folder, which jobs may change meanwhile.

    Links are not followed. One folder is open at a time, however deep they are.
    ``stop`` is asked now and then; once it says so, the answer is what was counted so far.
    """
    count, next_question = 0, _ASK
    waiting: list[tuple[bytes, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        count += 1  # so that a great many empty folders ask, too
        try:
            with tree.open_folder(top, parts) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((*parts, os.fsencode(entry.name)))
                    else:
                        count += 1
                    if count + len(waiting) >= next_question:
                        next_question = count + len(waiting) + _ASK
                        if stop():
                            return count
        except OSError:  # gone, or closed by its owner
            continue
    return count - 1
