"""The output of a service while its replicas come and go."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from cloud_ml.cli.display.harmless import Harmless
from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.standard_streams import OutputFailed
from cloud_ml.cli.display.terminal import above_the_line
from cloud_ml.cli.guard import explain
from cloud_ml.errors import CloudMlError, NotFound

if TYPE_CHECKING:
    from cloud_ml.sdk.models.handles import ServiceHandle

_LOOK_S = 1.0
"""How often it is looked for new replicas, at the latest."""
_LAST_WORDS_S = 10.0
"""So long may the logs of a service that is gone take to end."""


class Following:
    """Prints what every replica says. Once there were two, each line stands behind the number of
    its replica.

    Args:
        lines: Only the last so many lines of what those have said that are there now; of later ones
            all is new.
        installation: Print what was written before the model server ran, too.
        timestamps: Print a time before each line.
    """

    def __init__(
        self,
        handle: ServiceHandle,
        lines: int | None,
        *,
        installation: bool = True,
        timestamps: bool = False,
    ) -> None:
        self._shows = {"installation": installation, "timestamps": timestamps}
        self._handle = handle
        self._lines = lines
        self._threads: dict[int, threading.Thread] = {}
        self._lock = threading.Lock()
        self._terminal = sys.stdout.isatty()
        self._numbered = False
        self._failure: OutputFailed | None = None

    def run(self) -> int:
        """Follow until the service is gone or at rest; returns the exit code."""
        service = self._handle.service
        passed = {one.number for one in service.ended}
        try:
            while True:
                there = {one.number for one in service.replicas} | {
                    one.number for one in service.ended
                }
                self._begin(sorted(there - passed - self._threads.keys()))
                self._lines = None
                if self._failure is not None:
                    raise self._failure
                if service.settled and not service.replicas and not self._live:
                    return 0
                self._handle.wait_for_news(_LOOK_S)
                service = self._handle.service
        except NotFound:
            for thread in self._threads.values():
                thread.join(_LAST_WORDS_S)
            return 0
        except KeyboardInterrupt:
            return 130

    @property
    def _live(self) -> bool:
        return any(thread.is_alive() for thread in self._threads.values())

    def _begin(self, numbers: list[int]) -> None:
        if len(self._threads) + len(numbers) > 1 and not self._numbered:
            if self._threads:
                note(
                    f"there is replica {numbers[0]}, too: lines begin with the number of "
                    "their replica from now on"
                )
            with self._lock:
                self._numbered = True
        for number in numbers:
            self._threads[number] = threading.Thread(
                target=self._print, args=(number, self._lines), daemon=True
            )
            self._threads[number].start()

    def _print(self, number: int, lines: int | None) -> None:
        shown = Harmless() if self._terminal else bytes
        rest = b""
        try:
            for chunk in self._handle.logs(replica=number, follow=True, lines=lines, **self._shows):
                *whole, rest = (rest + shown(chunk)).split(b"\n")
                self._write(number, whole)
            self._write(number, [rest] if rest else [])
        except OutputFailed as error:  # for the main thread, which ends the command
            self._failure = error
        except CloudMlError as error:
            with self._lock:
                note(f"[{number}] {explain(error)}")

    def _write(self, number: int, whole: list[bytes]) -> None:
        with self._lock, above_the_line(sys.stdout):
            lead = b"[%d] " % number if self._numbered else b""
            sys.stdout.buffer.writelines(lead + line + b"\n" for line in whole)
            sys.stdout.buffer.flush()
