"""What a word that no command knows may mean: first by meaning (``synonyms``,
``option_synonyms``), then by spelling.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from difflib import get_close_matches

import click

from cloud_ml.cli.suggestions import option_synonyms, synonyms

_SEVERAL = 3
_SIMILAR = 0.75
"""How much of an option's name has to agree; its dashes do not count."""
_CAMEL = re.compile(r"(?<=[a-z])([A-Z])")
_SCRIPT_ARGUMENTS = "Put your script's arguments after `--`."


def find_alias(path: str, word: str, commands: Collection[str]) -> Sequence[str]:
    """The words that ``word`` stands for in the group ``path``; none if it is not a known word
    of another tool.
    """
    if (found := synonyms.COMMANDS.get(path, {}).get(word)) is not None:
        return found.split()
    if word in synonyms.COMMAND_ADVICE.get(path, {}):
        return ()
    return next(
        ((name,) for name in synonyms.GENERAL_COMMANDS.get(word, ()) if name in commands), ()
    )


def explain_unknown_command(
    path: str,
    word: str,
    commands: Sequence[str],
    rest: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> str:
    """One sentence about a command that does not exist; ``rest`` was typed after it. ``hidden``
    commands work, and are not proposed.
    """
    advice = _without_tool(path, word, [*commands, *hidden], rest) or (
        synonyms.COMMAND_ADVICE.get(path, {}).get(word)
    )
    if advice:
        return f'there is no command "{word}"; {advice}'
    if near := get_close_matches(word, commands, n=_SEVERAL):
        return f'there is no command "{word}"; did you mean {" or ".join(near)}?'
    if suggestion := _near_synonym(path, word):
        return f'there is no command "{word}"; {suggestion}'
    return f'there is no command "{word}"; there are {", ".join(commands)}'


def _near_synonym(path: str, word: str) -> str:
    """What to say where the word is spelled nearly as one of another tool; empty if it is not."""
    aliases, advice = synonyms.COMMANDS.get(path, {}), synonyms.COMMAND_ADVICE.get(path, {})
    near = get_close_matches(word, [*aliases, *advice], n=1, cutoff=_SIMILAR)
    if not near:
        return ""
    return advice.get(near[0]) or f"did you mean {aliases[near[0]]}?"


def _without_tool(path: str, word: str, commands: Sequence[str], rest: Sequence[str]) -> str:
    """What to type instead of ``kubectl logs NAME``; empty if the next word says nothing here."""
    if word not in synonyms.TOOLS.get(path, ()) or not rest:
        return ""
    if rest[0] in commands:
        return f"leave out {word}; use: {path} {shlex.join(rest)}"
    if words := find_alias(path, rest[0], commands):
        return f"leave out {word}; use: {path} {shlex.join([*words, *rest[1:]])}"
    advice = synonyms.COMMAND_ADVICE.get(path, {}).get(rest[0])
    return f"leave out {word}; {advice}" if advice else ""


def explain_unknown_option(error: click.NoSuchOption) -> str:
    """What to say about an option that does not exist."""
    sentence = f"there is no option {error.option_name}"
    if error.ctx is not None and (
        advice := _find_advice(error.ctx.command_path, error.option_name)
    ):
        sentence += f"; {advice}"
    elif near := _similar_options(error):
        sentence += f"; did you mean {' or '.join(near)}?"
    if error.ctx is not None and getattr(error.ctx.command, "takes_script_arguments", False):
        sentence += f"{'' if sentence.endswith('?') else '.'} {_SCRIPT_ARGUMENTS}"
    return sentence


def _similar_options(error: click.NoSuchOption) -> Sequence[str]:
    """Options of the command that are spelled nearly so."""
    if error.ctx is None or not error.option_name.startswith("--"):
        return ()
    names = {
        name.lstrip("-").replace("_", "-"): name
        for parameter in error.ctx.command.get_params(error.ctx)
        for name in parameter.opts
        if name.startswith("--")
        and not getattr(parameter, "hidden", False)
        and getattr(parameter, "offered", True)
    }
    option = error.option_name.lstrip("-").replace("_", "-")
    near = get_close_matches(option, names, n=_SEVERAL, cutoff=_SIMILAR)
    return [
        names[one]
        for one in near or sorted(one for one in names if one.startswith(option))[:_SEVERAL]
    ]


def _find_advice(path: str, option: str) -> str:
    """Also of a field of Kubernetes that is written as an option, such as ``--backoffLimit``."""
    tables = (path, option_synonyms.SAME_OPTIONS.get(path, path), "")
    spellings = (option, _CAMEL.sub(r"-\1", option).lower())
    return next(
        (
            found
            for table in tables
            for spelling in spellings
            if (found := option_synonyms.OPTION_ADVICE.get(table, {}).get(spelling))
        ),
        "",
    )
