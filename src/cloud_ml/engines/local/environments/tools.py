"""Runs installers and package builds on behalf of a tenant, fenced like the tenant's jobs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud_ml.engines.local.cgroups import Group, Limits
from cloud_ml.engines.local.disk.watch import DiskWatch
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.processes import confined_call, launch, proctree
from cloud_ml.engines.local.processes.launch import Fence, Launched
from cloud_ml.engines.local.processes.limits import Verdict
from cloud_ml.environments.base import Bind


class ToolSandbox:
    """The ``Sandbox`` that the maker of environments is given (see ``environments.base``).

    ``limits`` are set on ``group`` before anything runs in it. ``watch`` makes what looks at the
    folders that a tool may write to.
    """

    def __init__(
        self,
        fence: Fence,
        exposure: Exposure,
        group: Group | None,
        etc: str,
        own_network: tuple[int, str] | None = None,
        *,
        limits: Limits | None = None,
        watch: Callable[[Sequence[Path]], DiskWatch] | None = None,
    ) -> None:
        self._fence = fence
        self._exposure = exposure
        self._group = group
        self._etc = etc
        self._own_network = own_network
        self._limits = limits
        self._watch = watch
        self.limited = False
        """Whether a tool ran within the limits of the group."""

    @property
    def isolated(self) -> bool:
        """Whether processes see targets (True) or sources (False)."""
        return bool(self._fence.bwrap)

    def run(
        self,
        command: Sequence[str],
        *,
        read_only: Sequence[Bind],
        writable: Sequence[Bind],
        environment: Mapping[str, str],
        network: bool,
        timeout_s: float,
        output: Callable[[bytes], None],
    ) -> int:
        """Run ``command`` to its end; see ``environments.base.Sandbox``."""
        if self._fence.user is not None:
            for bind in writable:
                hand_over(bind.source, self._fence.user)
        show: Callable[[str], str] = self._exposure.path if self.isolated else str
        view = View(
            read_only=[(show(bind.source), bind.target) for bind in read_only],
            writable=[(show(bind.source), bind.target) for bind in writable],
            folder=self._folder(writable),
            hostname="build",
            network=network,
            own_network=self._own_network if network else None,
            etc=self._etc,
        )
        self._limit_group()
        watch = (
            self._watch([Path(bind.source) for bind in writable])
            if self._watch and writable
            else None
        )
        launched = launch.launch(self._fence, view, command, environment, self._group)
        try:
            ended = _pump(launched, output, time.monotonic() + timeout_s, watch)
        finally:
            proctree.send(launched.pid, signal.SIGKILL)
            proctree.end_all_descendants()
            launched.close()
        if isinstance(ended, Verdict):
            output(f"cloudml: {Path(command[0]).name} was ended: {ended.message}\n".encode())
            return -int(signal.SIGKILL)
        if ended is None:
            output(f"cloudml: {Path(command[0]).name} was ended after {timeout_s:g} s\n".encode())
            return -int(signal.SIGKILL)
        return ended.code if ended.code is not None else -(ended.signal or signal.SIGKILL)

    def call(
        self,
        function: Callable[[], None],
        *,
        folder: Path,
        inputs: Sequence[int],
        timeout_s: float,
        small: bool,
    ) -> int | None:
        """Run ``function`` in a confined process; see ``environments.base.Sandbox``.

        Joining a control group takes some 10 ms, so only what may take long does it.
        """
        if not confined_call.available(self._fence):
            return None
        group = None if small else self._group
        if group is not None:
            self._limit_group()
        return confined_call.run(
            self._fence, function, folder=folder, inputs=inputs, group=group, timeout_s=timeout_s
        )

    def guard(self, folders: Sequence[Path]) -> Callable[[], str | None]:
        """See ``environments.base.Sandbox``."""
        watch = self._watch(folders) if self._watch and folders else None

        def look() -> str | None:
            if watch is None or time.monotonic() < watch.next_look:
                return None
            verdict = watch.look(lambda: ())
            return verdict.message if verdict is not None else None

        return look

    def _limit_group(self) -> None:
        if self._group is not None and self._limits is not None:
            self._group.limit(self._limits)
            self.limited = True

    def _folder(self, writable: Sequence[Bind]) -> str:
        if not writable:
            return "/"
        return writable[0].target if self.isolated else writable[0].source


def hand_over(folder: str, user: tuple[int, int]) -> None:
    """Give ``folder`` to the user, with all that is in it if a server that did not switch users has
    filled it.

    The tenant's own processes may work in it at the same time, so nothing is followed that could
    lead out.
    """
    os.chown(folder, *user)
    with os.scandir(folder) as entries:
        if all(entry.stat(follow_symlinks=False).st_uid == user[0] for entry in entries):
            return
    for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                os.chown(name, *user, dir_fd=descriptor, follow_symlinks=False)


def _pump(
    launched: Launched, output: Callable[[bytes], None], deadline: float, watch: DiskWatch | None
) -> launch.Exit | Verdict | None:
    """Hand the output on until the command ends, or takes too much of the disk, or until the
    deadline (``None``).
    """
    poll = select.poll()
    poll.register(launched.output, select.POLLIN)
    for end in launched.ends:
        poll.register(end, select.POLLIN)
    ended = False
    while not ended:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if watch is not None:
            if (left_to_look := watch.next_look - time.monotonic()) <= 0:
                if (verdict := watch.look(lambda: proctree.descendants(os.getpid()))) is not None:
                    return verdict
                left_to_look = watch.next_look - time.monotonic()
            left = min(left, max(0.0, left_to_look))
        ended = any(descriptor in launched.ends for descriptor, _ in poll.poll(left * 1000))
        while chunk := _read(launched.output):
            output(chunk)
    return launch.wait(launched)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except BlockingIOError:
        return b""
