"""Command lines of launchers, such as ``torchrun --nproc_per_node 4 train.py``: what to type
instead.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

_INTERPRETERS = frozenset({"python", "uv", "poetry", "bash", "sh"})
_RECIPES: Mapping[str, str] = {
    "torchrun": "pytorch",
    "accelerate": "pytorch",
    "deepspeed": "pytorch",
    "mpirun": "mpi",
    "mpiexec": "mpi",
    "srun": "",
}
"""Launchers of several processes, and the recipe that starts the same ones. That of ``srun`` is not
known: it starts anything.
"""
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_COUNTS = frozenset(
    {"-n", "-np", "--np", "--nproc-per-node", "--num-processes", "--num-gpus", "--ntasks"}
)
"""Options of launchers that say how many processes to start."""


def check_no_launcher(command: str, words: Sequence[str]) -> None:
    """Explain how to submit a script to users who type ``python train.py`` or ``mpirun -np 4
    train.py``.

    Args:
        command: The command that they typed, such as ``cloudml run``.
        words: What they typed after it.

    Raises:
        UsageError: The first word is a launcher.
    """
    launcher = words[0].rstrip("0123456789.") if words else ""
    if not (launcher in _INTERPRETERS or launcher in _RECIPES) or Path(words[0]).exists():
        return
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), "")
    if script.endswith(".sh"):
        raise click.UsageError(
            f"a job runs Python; submit the script that {script} runs: cloudml jobs submit train.py"
        )
    if script:
        position = words.index(script)
        flags, arguments = _flags(launcher, words[1:position]), words[position + 1 :]
    elif list(words[1:2]) == ["-m"] and len(words) > 2:
        flags, arguments = ["-m", words[2], *_flags(launcher, ())], words[3:]
    elif len(words) == 1:
        flags, arguments = _flags(launcher, ()), ()
    else:
        return
    raise click.UsageError(
        f"leave out {words[0]} and give the {'script' if script else 'folder'}: "
        + _command_line([command, script or ".", *flags], arguments)
    )


def check_no_process_count(command: str, words: Sequence[str]) -> None:
    """Refuse the ``-np 4`` of ``mpirun``, which would be read as ``-n p``: a job of the name p. So
    would ``-np4``, as a job of the name p4.

    Raises:
        UsageError: It stands among ``words``.
    """
    counts = [count for option, count in itertools.pairwise(words) if option == "-np"]
    counts += [word.removeprefix("-np") for word in words if word.startswith("-np")]
    for count in counts:
        if count.isdecimal():
            raise click.UsageError(
                f"there is no option -np; for MPI: {command} SCRIPT --recipe mpi -w {count}"
            )


def _command_line(words: Sequence[str], arguments: Sequence[str]) -> str:
    command, *others = words
    line = f"{command} {shlex.join(others)}"
    given = arguments[1:] if arguments and arguments[0] == "--" else arguments
    return f"{line} -- {shlex.join(given)}" if given else f"{line} -- ARGUMENTS"


def _flags(launcher: str, options: Sequence[str]) -> list[str]:
    """The options that have a job start what the launcher would."""
    recipe = _RECIPES.get(launcher, "")
    if not recipe and any(module in options for module in _TORCH_MODULES):
        recipe = "pytorch"
    if launcher == "srun":
        count = _count(options)
        return ["-w", count] if count.isdecimal() and int(count) > 1 else []
    return ["--recipe", recipe, "-w", _count(options)] if recipe else []


def _count(options: Sequence[str]) -> str:
    """How many processes the launcher would start; ``N`` if its options say no number."""
    for position, option in enumerate(options):
        name, equals, value = option.partition("=")
        if name.replace("_", "-") in _COUNTS:
            count = value if equals else next(iter(options[position + 1 :]), "")
            return count if count.isdecimal() else "N"
    return "N"
