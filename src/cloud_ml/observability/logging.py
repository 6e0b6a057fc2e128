"""The platform's own log: one sentence for people, fields for machines, to standard error."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from cloud_ml.errors import TryAgain
from cloud_ml.models.codec import format_time
from cloud_ml.observability import requests

_ENCODE = json.JSONEncoder(default=str, allow_nan=False).encode
_STANDARD = set(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and whatever was passed as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _message(record),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = _sentence(record) or self.formatException(record.exc_info)
        try:
            return _ENCODE(line)
        except (
            ValueError,
            TypeError,
            RecursionError,
        ):  # numbers that JSON does not have, keys of other types
            return _ENCODE(
                {
                    str(name): value if isinstance(value, str) else repr(value)
                    for name, value in line.items()
                }
            )


class TextFormatter(logging.Formatter):
    """A line for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        facts = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}" + (
            f"  [{facts}]" if facts else ""
        )
        if not record.exc_info:
            return line
        if sentence := _sentence(record):
            return f"{line}: {sentence}"
        return f"{line}\n{self.formatException(record.exc_info)}"


def _sentence(record: logging.LogRecord) -> str | None:
    """An error that passes, such as a database that does not answer, in one line; where it was
    raised helps nobody. ``None`` for all others, whose traceback is wanted.
    """
    error = record.exc_info[1] if record.exc_info else None
    return f"{error.message} (code: {error.code})" if isinstance(error, TryAgain) else None


def _message(record: logging.LogRecord) -> str:
    """The sentence; where its arguments do not fit it, both as they are."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} {record.args!r}"


def configure(style: str, *, level: int = logging.INFO) -> None:
    """Send everything to standard error as ``json``, ``text``, or (``auto``) by whether it is a
    terminal.
    """
    text = style == "text" or (style == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    logging.captureWarnings(True)
    _log_what_nobody_caught()
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # Which file, thread and process said it is in none of our lines, and to find out costs a
    # seventh of each.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for chatty in ("uvicorn.access", "asyncio", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _log_what_nobody_caught() -> None:
    """Have the interpreter's own reports of exceptions written to the log: they are text of many
    lines.
    """
    logger = logging.getLogger("cloud_ml")

    def in_thread(report: threading.ExceptHookArgs) -> None:
        if report.exc_type is SystemExit or report.exc_value is None:
            return
        name = report.thread.name if report.thread is not None else ""
        logger.error(
            "an exception ended a thread", exc_info=report.exc_value, extra={"thread_name": name}
        )

    def in_main(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        del kind, trace
        logger.critical("an exception ended the process", exc_info=error)

    def unraisable(report: sys.UnraisableHookArgs) -> None:
        logger.error(
            "an exception could not be raised: %s",
            report.err_msg or "in a finaliser",
            exc_info=report.exc_value,
        )

    threading.excepthook, sys.excepthook, sys.unraisablehook = in_thread, in_main, unraisable


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    facts = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    if "request_id" not in facts and (request_id := requests.current.get()) is not None:
        facts["request_id"] = request_id
    return facts
