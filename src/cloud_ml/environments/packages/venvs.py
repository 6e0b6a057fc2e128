"""Virtual environments that a job left as they were, kept for the next one that needs the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cloud_ml.environments.files import digest_of
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.packages.kept import Kept
from cloud_ml.environments.packages.venv import make_venv

_FORMAT = 1


class Venvs:
    """The virtual environment of one job, from the tenant's shelves or new.

    Args:
        folder: The tenant's shelves; see ``Kept``.
        own: Gives a new one to the user of the tenant's jobs.
    """

    def __init__(self, folder: Path, own: Callable[[Path], None]) -> None:
        self._kept = Kept(folder)
        self._own = own

    def make(self, target: Path, interpreter: Interpreter, sites: Sequence[Path]) -> None:
        """Have ``target`` become an environment like one that ``make_venv`` makes."""

        def fresh(target: Path) -> None:
            target.mkdir(mode=0o700, exist_ok=True)
            make_venv(target, interpreter, sites)
            self._own(target)

        shelf = digest_of(
            _FORMAT, str(interpreter.path), interpreter.version, list(map(str, sites))
        )
        self._kept.take(shelf, target, fresh)

    def give_back(self, target: Path) -> None:
        """Keep ``target`` if nothing in it was changed; else remove it."""
        self._kept.give_back(target)
