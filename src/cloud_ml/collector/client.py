"""The server's side of the collector: starts it, asks it, and replaces it when it dies."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cloud_ml import failpoints
from cloud_ml.collector import frames
from cloud_ml.collector.frames import NO_STEP, BadFrame, Row
from cloud_ml.domain.metrics.points import LARGEST_STEP, LARGEST_TIME
from cloud_ml.domain.metrics.reports import Value, is_metric_name
from cloud_ml.domain.metrics.summary_tags import SummaryTag
from cloud_ml.tracking.summary_kinds import KINDS, UNKNOWN
from cloud_ml.usecases.metrics.parsing import (
    EventPiece,
    EventSession,
    LogPiece,
    NoParser,
    PatternProblem,
    UnreadableFile,
)

_ANSWER_S = 60.0
"""A request has five seconds of processor time. On a busy machine that may take a while."""
_START_S = 60.0
_END_S = 5.0
"""A process whose line is closed has ended by then."""
_PROGRAM = (sys.executable, "-I", "-m", "cloud_ml.collector.main")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
_MOST_DEATHS, _MOST_KILLS = 2, 10
"""So often a request is asked again when the process has died of it, or was killed."""
_KILLED = (-signal.SIGKILL, -signal.SIGTERM)
_LONGEST_WORDS = 64 * 1024
_LARGEST_PIECE = 1 << 20
_MOST_SESSIONS = 16
_MOST_TAGS = 2000
logger = logging.getLogger(__name__)


class CollectorProcess:
    """See ``usecases.metrics.parsing.PointParser``. It starts with the first request.

    Args:
        user: The user that it becomes; 0 to stay the server's.
        idle_s: It ends after so long without a request.
        answer_s: So long one answer may take.
        program: What is started, with the number of the user behind it.
    """

    def __init__(
        self,
        user: int = 0,
        *,
        idle_s: float = 300.0,
        answer_s: float = _ANSWER_S,
        program: Sequence[str] = _PROGRAM,
    ) -> None:
        self._user = user
        self._answer_s = answer_s
        self._program = program
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._used = 0.0

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None else self._process.pid

    def read_events(self, descriptor: int, offset: int, session: EventSession) -> EventPiece:
        """See ``PointParser``."""
        request = {"kind": "events", "offset": offset, "session": [session.number, session.purge]}
        document, rows = self._ask(request, descriptor)
        try:
            piece = event_piece(document, rows)
            _whole(offset + piece.taken, offset, document["size"])
        except (BadFrame, LookupError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error
        return piece

    def read_log(
        self,
        descriptor: int,
        offset: int,
        left: int,
        *,
        patterns: Sequence[str],
        steps: Mapping[str, int],
        at: int,
        final: bool,
    ) -> LogPiece:
        """See ``PointParser``."""
        request = {
            "kind": "log", "offset": offset, "left": left, "patterns": list(patterns),
            "steps": dict(steps), "at": at, "final": final,
        }  # fmt: skip
        document, rows = self._ask(request, descriptor)
        try:
            piece = log_piece(document, rows)
            _whole(piece.taken, 0, left)
        except (BadFrame, LookupError, TypeError, ValueError) as error:
            raise self._nonsense(error) from error
        return piece

    def check_patterns(
        self, patterns: Sequence[str], *, search: bool = False
    ) -> PatternProblem | None:
        """See ``PointParser``."""
        request = {"kind": "check", "patterns": list(patterns), "search": search}
        document, _ = self._ask(request, None)
        refused, pattern = document.get("refused"), document.get("pattern")
        if isinstance(refused, str) and isinstance(pattern, str):
            return PatternProblem(pattern, refused[:500]) if refused else None
        return None

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    # ---- private

    def _ask(
        self, request: Mapping[str, Any], descriptor: int | None
    ) -> tuple[dict[str, Any], list[Row]]:
        """Ask, and ask again if the process died. A file is to blame if it dies twice, unless
        somebody killed it, such as a kernel without memory.
        """
        deaths = kills = 0
        with self._lock:
            while True:
                try:
                    failpoints.here("collector.ask.before")
                    return self._exchange(request, descriptor)
                except (OSError, EOFError, BadFrame) as error:
                    why = self._why(error)
                    was_killed = self._was_killed()
                    self._end()
                    deaths, kills = deaths + (not was_killed), kills + was_killed
                    if deaths == _MOST_DEATHS:
                        raise UnreadableFile(why) from error
                    if kills == _MOST_KILLS:
                        raise NoParser(f"{why}, {kills} times in a row") from error
                    logger.info("the collector is replaced: %s", why)

    def _exchange(
        self, request: Mapping[str, Any], descriptor: int | None
    ) -> tuple[dict[str, Any], list[Row]]:
        line = self._started()
        line.settimeout(self._answer_s)
        data = frames.pack(request)
        if len(data) > frames.LARGEST_REQUEST:
            raise UnreadableFile(f"a request of {len(data)} bytes is too large")
        files = [] if descriptor is None else [descriptor]
        # The descriptor goes with the first byte; the kernel may take fewer bytes than all.
        sent = socket.send_fds(line, [data], files) if files else line.send(data)
        line.sendall(data[sent:])
        found = frames.receive(line, b"", frames.LARGEST_ANSWER)
        self._used = time.monotonic()
        return found

    def _started(self) -> socket.socket:
        """The line to the process, which is started if there is none.

        Raises:
            NoParser: It does not start.
            OSError: It was killed while it started.
            EOFError: Likewise.
        """
        if self._line is not None:
            return self._line
        try:
            self._line = self._start()
            frames.receive(self._line, b"", frames.LARGEST_ANSWER)
        except (OSError, EOFError, BadFrame) as error:
            why = self._why(error)
            if self._was_killed():
                raise
            why += self._last_words()
            self._end()
            raise NoParser(f"the collector of metrics does not start: {why}") from error
        self._hear_no_more()
        self._used = time.monotonic()
        self._watch_idle()
        return self._line

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - a program of ours
                    [*self._program, str(self._user)],
                    stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                    env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                    start_new_session=True, cwd="/",
                )  # fmt: skip
            except OSError:
                ours.close()
                raise
        ours.settimeout(_START_S)
        return ours

    def _watch_idle(self) -> None:
        """It takes some megabytes, which a server that has nothing to parse does not need."""
        self._timer = threading.Timer(self._idle_s, self._end_if_idle)
        self._timer.daemon = True
        self._timer.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if self._line is None:
                return
            if time.monotonic() - self._used >= self._idle_s:
                self._end()
            else:
                self._watch_idle()

    def _nonsense(self, error: Exception) -> UnreadableFile:
        """It said what it never says: it may be another program by now."""
        with self._lock:
            self._end()
        return UnreadableFile(f"the collector gave a wrong answer: {error}")

    def _why(self, error: Exception) -> str:
        """Why a request has failed: how the process has ended, if it has."""
        if isinstance(error, TimeoutError):
            return f"it gave no answer within {self._answer_s:g} s"
        if isinstance(error, BadFrame):
            return f"the collector gave a wrong answer: {error}"
        if self._process is None:
            return str(error)
        try:
            ended = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return str(error)
        # The timer of `fences.begin_request` sends it.
        if ended == -signal.SIGPROF:
            return "reading it takes more processor time than allowed"
        if ended < 0:
            return f"the collector of metrics was ended by {signal.Signals(-ended).name}"
        return f"the collector of metrics ended with exit code {ended}"

    def _was_killed(self) -> bool:
        """Whether the process was ended from outside. Nothing that it reads sends such a signal:
        it dies of other ones, or of none.
        """
        return self._process is not None and self._process.returncode in _KILLED

    def _last_words(self) -> str:
        """What the process has said last before it became the collector, such as the name of a
        module that is not installed.
        """
        if self._process is None or self._process.stderr is None:
            return ""
        self._process.kill()
        lines = self._process.stderr.read(_LONGEST_WORDS).decode(errors="replace").split("\n")
        texts = [line.strip() for line in lines if line.strip()]
        return f": {texts[-1][:200]}" if texts else ""

    def _hear_no_more(self) -> None:
        """From here on it reads what tenants wrote."""
        if self._process is not None and self._process.stderr is not None:
            self._process.stderr.close()

    def _end(self) -> None:
        """End the process."""
        process, line, timer = self._process, self._line, self._timer
        self._process = self._line = self._timer = None
        if timer is not None:
            timer.cancel()
        if line is not None:
            line.close()
        if process is not None:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def event_piece(document: Mapping[str, Any], rows: Sequence[Row]) -> EventPiece:
    """What an answer says about an event file; see ``log_piece``."""
    size = _whole(document["size"], 0, 2**63)
    taken = _whole(document["taken"], 0, size)
    broken = document["broken"]
    if not isinstance(broken, str) or not isinstance(document["sessions"], list):
        raise BadFrame("an answer has other parts")
    sessions = [_session(*one) for one in document["sessions"][: _MOST_SESSIONS + 1]]
    values, found = [], _values(document, rows)
    bounds = [begin for begin, _ in sessions[1:]] + [len(found)]
    at = 0
    for (_, session), end in zip(sessions, bounds, strict=True):
        part = found[at:end]
        values += [one._replace(restart=session.number, purge=session.purge) for one in part]
        at = max(at, end)
    return EventPiece(values, taken, sessions[-1][1], broken[:200], _tags(document["tags"]))


def log_piece(document: Mapping[str, Any], rows: Sequence[Row]) -> LogPiece:
    """What an answer says about a log.

    Raises:
        BadFrame: It says what is not possible. ``LookupError``, ``TypeError`` and ``ValueError``
            mean the same.
    """
    taken = _whole(document["taken"], 0, _LARGEST_PIECE)
    return LogPiece(_values(document, rows), taken, _steps(document["steps"]))


def _tags(found: Any) -> list[SummaryTag]:
    if not isinstance(found, list) or len(found) > _MOST_TAGS:
        raise BadFrame("an answer has other parts")
    tags = []
    for name, kind, summaries, last_step, last_at in found:
        if not (isinstance(name, str) and is_metric_name(name)):
            raise BadFrame("an answer has names that are none")
        if kind not in (*KINDS, UNKNOWN):
            raise BadFrame(f"the kind {str(kind)[:50]!r}")
        count = _whole(summaries, 1, _LARGEST_PIECE)
        step = _whole(last_step, -LARGEST_STEP, LARGEST_STEP)
        tags.append(SummaryTag(name, kind, count, step, _whole(last_at, 0, LARGEST_TIME)))
    return tags


def _session(begin: Any, number: Any, purge: Any) -> tuple[int, EventSession]:
    if purge is not None:
        purge = _whole(purge, -LARGEST_STEP, LARGEST_STEP)
    found = EventSession(_whole(number, 0, _MOST_SESSIONS - 1), purge)
    return _whole(begin, 0, frames.MOST_POINTS), found


def _values(document: Mapping[str, Any], rows: Sequence[Row]) -> list[Value]:
    names = document["names"]
    if not isinstance(names, list) or not all(
        isinstance(name, str) and is_metric_name(name) for name in names
    ):
        raise BadFrame("an answer has names that are none")
    found = []
    for number, step, at, value in rows:
        if not (step == NO_STEP or -LARGEST_STEP <= step <= LARGEST_STEP):
            raise BadFrame(f"the step {step}")
        if not 0 <= at <= LARGEST_TIME:
            raise BadFrame(f"the time {at}")
        found.append(Value(names[number], None if step == NO_STEP else step, at, value))
    return found


def _steps(found: Any) -> dict[str, int]:
    if not isinstance(found, dict) or len(found) > 100:
        raise BadFrame("an answer has other parts")
    return {str(name)[:100]: _whole(step, 0, LARGEST_STEP) for name, step in found.items()}


def _whole(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadFrame(f"{value!r} is not from {least} to {most}")
    return value
