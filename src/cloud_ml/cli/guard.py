"""What a user sees when something goes wrong: one sentence, what to do next, a code; never a
traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from cloud_ml.cli.display.standard_streams import OutputFailed, drop_output
from cloud_ml.errors import CloudMlError, RequestError

FAILED = 1
USAGE = 2
INTERRUPTED = 130
READER_LEFT = 128 + signal.SIGPIPE


def run_guarded(command: Callable[[], Any]) -> int:
    """Run ``command`` and return the exit code: its own, or 1 for an error, 2 for wrong usage, 130
    for Ctrl-C.

    141 says that the reader of the output has gone, as a shell says of a program that SIGPIPE has
    ended.

    With ``CLOUDML_DEBUG=1`` in the environment, errors of ours are raised on with their traceback.
    """
    try:
        return _flush_output(_run(command))
    except OutputFailed as error:
        drop_output()
        if error.reader_left:  # as in `cloudml jobs list | head -1`: nobody is left to tell
            return READER_LEFT
        _say(f"cloudml: {error} (code: output)")
        return FAILED


def each(names: Iterable[str], do: Callable[[str], None]) -> int:
    """Do something to everything that is named. Errors are told and the rest is done all the same.

    Returns:
        The exit code: 0 if all went well.
    """
    code = 0
    for name in dict.fromkeys(names):
        try:
            do(name)
        except (
            RequestError
        ) as error:  # about this one; a server that cannot be reached is about all
            _say(explain(error))
            code = FAILED
    return code


def explain(error: CloudMlError) -> str:
    """The error as text: ``cloudml: message``, what is allowed where that does not say it, the
    hint, the code.
    """
    lines = [f"cloudml: {error.message}"]
    if error.allowed and error.allowed.removeprefix("one of ") not in error.message:
        lines.append(f"allowed: {error.allowed}")
    if error.hint:
        lines.append(error.hint)
    return "\n  ".join(lines) + f" (code: {error.code})"


def _run(command: Callable[[], Any]) -> int:
    debug = os.environ.get("CLOUDML_DEBUG") == "1"
    try:
        outcome = command()
    except CloudMlError as error:
        if debug:
            raise
        _say(explain(error))
        return FAILED
    except click.UsageError as error:
        return _tell_usage(error)
    except click.ClickException as error:
        _say(f"cloudml: {error.format_message()}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        from cloud_ml.cli.display.terminal import wipe

        wipe()  # a second Ctrl-C may have kept whoever drew it from doing so
        _say("cloudml: interrupted")
        return INTERRUPTED
    except OutputFailed:
        raise
    except Exception as error:
        if debug:
            raise
        _say(
            f"cloudml: an error that should not happen: {type(error).__name__}: {error}\n"
            "  Please report it; CLOUDML_DEBUG=1 shows where it comes from. (code: internal)"
        )
        return FAILED
    return outcome if isinstance(outcome, int) else 0


def _flush_output(code: int) -> int:
    # Flush here, where an error still becomes our message. If the flush at interpreter exit
    # fails, Python exits with 120.
    sys.stdout.flush()
    return code


def _tell_usage(error: click.UsageError) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    _say(f"cloudml: {_usage_message(error)}")
    if error.ctx is not None:
        _say(f"  Try `{error.ctx.command_path} --help`. (code: usage)")
    return USAGE


def _usage_message(error: click.UsageError) -> str:
    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    from cloud_ml.cli.suggestions.unknown_words import explain_unknown_option

    return explain_unknown_option(error)


def _say(text: str) -> None:
    from cloud_ml.cli.display.terminal import printable

    click.echo(printable(text), err=True)
