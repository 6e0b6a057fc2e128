"""The platform's own log: one sentence for people, fields for machines, to standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from cloud_ml.models.codec import format_time
from cloud_ml.observability import requests

_ENCODE = json.JSONEncoder(default=str).encode
_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and whatever was passed as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _ENCODE(line)


class TextFormatter(logging.Formatter):
    """A line for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        facts = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}" + (f"  [{facts}]" if facts else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(style: str, *, level: int = logging.INFO) -> None:
    """Send everything to standard error as ``json``, ``text``, or (``auto``) by whether it is a terminal."""
    text = style == "text" or (style == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # Which file, thread and process said it is in none of our lines, and to find out costs a seventh of each.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for chatty in ("uvicorn.access", "asyncio", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    facts = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    if "request_id" not in facts and (request_id := requests.current.get()) is not None:
        facts["request_id"] = request_id
    return facts
