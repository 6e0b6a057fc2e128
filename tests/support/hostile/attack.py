"""One attack: a program for the runner, and what is claimed of it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

SANDBOX, BUILD, LANDLOCK, UNFILTERED, NOTHING, STRANGER = (
    "sandbox", "build", "landlock", "unfiltered", "nothing", "stranger",
)  # fmt: skip
"""Runs: in the sandbox; where a package is built; behind Landlock alone; in the sandbox without
its filter; without any fence, as the server's own user; and on the machine as a user without
rights, by nobody's engine.
"""


@dataclass(frozen=True)
class Attack:
    """What a hostile job tries.

    ``program`` defines ``attack()``, which returns (or returns ``done``) when it got through.
    ``refused`` are the answers that count as held. ``control`` is the run in which it must get
    through, or the attack proves nothing. ``landlock`` says whether it is held without bubblewrap
    too.
    """

    name: str
    title: str
    program: str
    control: str
    refused: frozenset[str]
    landlock: bool


def attack(
    title: str, *, refused: str, control: str = NOTHING, landlock: bool = True
) -> Callable[[Callable[[], object]], Attack]:
    """Make an attack of a function. Its text is what runs, in another process: it sees the names
    of ``runner``.
    """

    def made(function: Callable[[], object]) -> Attack:
        text = textwrap.dedent(inspect.getsource(function))
        text = "def attack(" + text.partition("\ndef ")[2].partition("(")[2]
        return Attack(function.__name__, title, text, control, frozenset(refused.split()), landlock)

    return made
