"""Paths of this machine as a person types them."""

from __future__ import annotations

import os
from pathlib import Path


def expand_home(text: str) -> str:
    """``~/x`` and ``~user/x`` with the home folder in place of the first part, as a shell has them.

    A shell does not do it everywhere: ``--opt=~/x`` arrives as it stands. Nothing else changes:
    ``./~x`` names a file or folder that is called ``~x``, and so does ``~x`` where there is no user
    of that name.
    """
    return os.path.expanduser(text)  # noqa: PTH111 - Path forgets a leading "./", and refuses unknown users


def local_path(text: str) -> Path:
    """The file or folder that ``text`` names; see ``expand_home``."""
    return Path(expand_home(text))
