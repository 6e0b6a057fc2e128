"""What this machine's engine knows, as files: the one truth that server, spawner and supervisors
share.

::

    <root>/ledger/gates/<gang>          who may start the gang: a claim, or a tombstone. Made once, by link(2)
    <root>/ledger/reports/<gang>.json   how far the gang has come; replaced atomically
    <root>/ledger/stops/<gang>          a request to stop it: seconds of grace
    <root>/ledger/restarts/<gang>.<task>  a request to start the task again; taken by its supervisor
    <root>/ledger/stacks/<gang>.<task>  a request to see the stacks of a task; taken by its supervisor
    <root>/jobs/<job>/work              the home directory of the job, kept over attempts; see ``working_directory``
    <root>/jobs/<job>/<attempt>/        venv, tmp, logs, usage of one attempt
    <root>/listeners/…                  where supervisors hand out the sockets of jobs; see ``ListenerStore``
    <root>/disk-shares/<gang>           what a gang that runs keeps on the disk
    <root>/projects/<number>            the job that has this project of the file system
    <root>/venvs/<tenant>/              virtual environments, and empty folders, that wait for their next job

``gates`` is the check-in of the engine's contract: a claim and a tombstone race for the same name,
so exactly one of them exists, whoever crashes where. No lock is ever held.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cloud_ml import failpoints
from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local import small_files
from cloud_ml.engines.local.disk.kept_disk import KeptDisk
from cloud_ml.engines.local.disk.project_ids import ProjectIds
from cloud_ml.engines.local.small_files import content
from cloud_ml.environments.removing import remove
from cloud_ml.errors import InvalidRequest
from cloud_ml.job_sockets import WORK_FOLDER
from cloud_ml.models import codec

UNCLAIMED = ".unclaimed"
TEMPORARY_FOLDER = "tmp"
# Gates outlive their job: a leader that was paused may still try to start an attempt of it.
_GATES_KEPT = timedelta(days=7)
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What comes of reading a file that a power cut has torn."""
_SMALL_REPORT, _KNOWN_REPORTS = 1 << 14, 128
"""So many reports of at most so many bytes are kept as they were read last."""


@dataclass(frozen=True)
class Gate:
    """The content of a gate: the supervisor that claimed the gang, or nobody (a tombstone).

    ``groups`` are the names of the gang's control groups.
    """

    # Another process may get this number later. With its start time and the boot id it is unique.
    pid: int = 0
    started: int = 0
    boot: str = ""
    groups: Sequence[str] = ()

    @property
    def claimed(self) -> bool:
        """Whether a supervisor has the gang, as opposed to a tombstone."""
        return self.pid != 0


class Ledger:
    """Reads and writes the files. Safe to use from any number of processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gates = root / "ledger" / "gates"
        self.reports = root / "ledger" / "reports"
        self.stops = root / "ledger" / "stops"
        self.stacks = root / "ledger" / "stacks"
        self.restarts = root / "ledger" / "restarts"
        self.jobs = root / "jobs"
        self.venvs = root / "venvs"
        self.listeners = root / "listeners"
        self.disk_shares = root / "disk-shares"
        self.projects = ProjectIds(root / "projects", self.jobs)
        self.kept_disk = KeptDisk(root / "kept-disk", self.jobs, boot_id())

    def create(self) -> None:
        """Make the folders; jobs' own are passable so that a job's user reaches its working
        folder.
        """
        for folder in (self.gates, self.reports, self.stops, self.stacks, self.restarts):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.jobs.mkdir(parents=True, exist_ok=True)
        for folder in (self.venvs, self.listeners):
            folder.mkdir(exist_ok=True, mode=0o700)
        for folder in (self.root, self.jobs):
            folder.chmod(0o711)
        # A gate must survive a power failure, so the names of its folders must be on disk, too.
        for folder in (
            self.root.parent,
            self.root,
            self.gates.parent,
        ):
            _sync_folder(folder)

    # ---- gates

    def claim(self, key: GangKey, groups: Sequence[str] = ()) -> bool:
        """Take the gang for the calling process; false if it was claimed or stopped before."""
        return self._make_gate(
            key, Gate(os.getpid(), process_start(os.getpid()) or 0, boot_id(), groups)
        )

    def bury(self, key: GangKey) -> bool:
        """Make sure that an unclaimed gang never starts; false if it was claimed before."""
        if self._make_gate(key, Gate()):
            return True
        gate = self.gate(key)
        return gate is None or not gate.claimed

    def bury_skipped(self, key: GangKey) -> None:
        """Bury the attempts before this one that nobody has asked for.

        A job that is paused while it waits goes on as its next attempt. ``attempts`` counts up to
        the first one without a gate, and would miss those after it.
        """
        for attempt in range(len(self.attempts(key.job_uid)) + 1, key.attempt):
            self.bury(GangKey(key.job_uid, attempt))

    def gate(self, key: GangKey) -> Gate | None:
        """The gang's gate, or ``None`` while it is open. One that cannot be read bars the gang
        like any other.
        """
        try:
            document = json.loads(content(f"{self.gates}/{key}"))
            groups = [str(name) for name in document.get("groups", ())]
            return Gate(
                int(document["pid"]), int(document["started"]), str(document["boot"]), groups
            )
        except FileNotFoundError:
            return None
        except _DAMAGED:
            return Gate(pid=-1)

    def _make_gate(self, key: GangKey, gate: Gate) -> bool:
        gate_file = f"{self.gates}/{key}"
        draft = _draft(gate_file)
        try:
            # Whatever a power cut leaves of a claim bars the gang, and what it was about is lost in
            # any case. A tombstone has to say that nothing ran.
            words = json.dumps(gate.__dict__).encode()
            small_files.write(draft, words, sync=not gate.claimed)
            failpoints.here("ledger.gate.before")
            # link(2) fails where the name exists, and rename(2) would replace it. So of a claim
            # and a tombstone at the same time exactly one wins.
            os.link(draft, gate_file)
            failpoints.here("ledger.gate.after")
        except FileExistsError:
            return False
        finally:
            _unlink(draft)
        _sync_folder(self.gates)  # a power cut must not reopen what user code has passed
        return True

    # ---- stops

    def request_stop(self, key: GangKey, grace_s: float, why: Reason = Reason.CANCELLED) -> None:
        """Leave the request to stop; a later one with less grace replaces it.

        Why is a file of its own: supervisors of older versions read a number. An attempt without
        a folder has no task that could be told.
        """
        with contextlib.suppress(FileNotFoundError):
            # Write the reason first: a supervisor that finds the request reads the reason at
            # once.
            _replace(str(self._stop_reason(key)), why)
        _replace(f"{self.stops}/{key}", str(grace_s))

    def stop_reason(self, key: GangKey) -> str:
        """Why the gang is to stop."""
        try:
            return content(str(self._stop_reason(key))).decode("utf-8", "replace")
        except OSError:
            return Reason.CANCELLED

    def stop_requested(self, key: GangKey) -> float | None:
        """Seconds of grace if the gang is to stop, else ``None``. A request that cannot be read
        leaves none.
        """
        try:
            grace_s = float(content(f"{self.stops}/{key}"))
        except FileNotFoundError:
            return None
        except ValueError:
            return 0.0
        return grace_s if 0 <= grace_s < float("inf") else 0.0

    def _stop_reason(self, key: GangKey) -> Path:
        return self.attempt_folder(key) / "stop_reason"

    # ---- stacks

    def request_stacks(self, key: GangKey, task: str) -> None:
        """Leave the request to see the stacks of a task."""
        _replace(f"{self.stacks}/{key}.{task}", "")

    def take_stack_requests(self, key: GangKey, tasks: Sequence[str]) -> list[str]:
        """Those of ``tasks`` whose stacks somebody asks to see; the requests are fulfilled with that."""
        return [task for task in tasks if _is_taken(self.stacks / f"{key}.{task}")]

    # ---- restarts of single tasks

    def request_restart(self, key: GangKey, task: str, number: int, grace_s: float) -> None:
        """Leave the request that a task starts again: the restart ``number`` of those that were asked
        for. It has ``grace_s`` seconds to end.
        """
        request = json.dumps({"number": number, "grace_s": grace_s})
        _replace(f"{self.restarts}/{key}.{task}", request)

    def take_restart_requests(
        self, key: GangKey, tasks: Sequence[str]
    ) -> list[tuple[str, int, float]]:
        """The task, number and grace of each request for one of ``tasks``. They are gone with that:
        whoever takes them fulfils them, or dies with the attempt.
        """
        found = []
        for task in tasks:
            request = f"{self.restarts}/{key}.{task}"
            taken = _draft(request)
            with contextlib.suppress(FileNotFoundError, *_DAMAGED):
                # Before it is read: the next one may take its place meanwhile.
                os.rename(request, taken)  # noqa: PTH104
                document = json.loads(content(taken))
                found.append((task, int(document["number"]), float(document["grace_s"])))
            _unlink(taken)
        return found

    # ---- reports

    def report(self, gang: ObservedGang) -> None:
        """Publish how far a gang has come."""
        file = f"{self.reports}/{gang.job_uid}.{gang.attempt}.json"
        _replace(file, json.dumps(codec.encode(gang), separators=(",", ":")))

    def tell_unclaimed(self, key: GangKey) -> None:
        """Let who watches the reports know that nobody is going to claim the gang. Nothing stays
        behind.
        """
        news = f"{self.reports}/{key}{UNCLAIMED}"
        # The rename is the event that the engine's watch hears. The file itself is not needed.
        _replace(news, "")
        _unlink(news)

    def read_report(self, key: GangKey) -> ObservedGang | None:
        """What was last published, or ``None``; also where a power cut has left nothing that can
        be read.
        """
        try:
            document = content(f"{self.reports}/{key}.json")
            return (_known_report if len(document) <= _SMALL_REPORT else _report)(document)
        except (FileNotFoundError, InvalidRequest, *_DAMAGED):
            return None

    def observe(self, key: GangKey) -> ObservedGang | None:
        """The gang as it is: the report, corrected by whether its supervisor lives."""
        gate = self.gate(key)
        if gate is None:
            return None
        if not gate.claimed:
            return ObservedGang(key.job_uid, key.attempt, GangState.TOMBSTONED)
        report = self.read_report(key)
        if report is None:
            report = ObservedGang(key.job_uid, key.attempt, GangState.STAGING)
        if report.state.over or is_alive(gate):
            return report
        report = self.read_report(key) or report  # it may have reported its end and left in between
        return report if report.state.over else lost(report, gate)

    def attempts(self, job_uid: str) -> list[int]:
        """Attempts of the job that were claimed or buried, in order."""
        found, attempt = [], 1
        while os.path.exists(f"{self.gates}/{job_uid}.{attempt}"):  # noqa: PTH110 - several times for each job
            found.append(attempt)
            attempt += 1
        return found

    def known_jobs(self) -> Iterator[str]:
        """Uids of jobs with a gate, each once."""
        seen = set()
        for name in os.listdir(self.gates):  # noqa: PTH208
            uid, _, attempt = name.rpartition(".")
            if uid and attempt.isdigit() and uid not in seen and not name.startswith("."):
                seen.add(uid)
                yield uid

    # ---- folders

    def job_folder(self, job_uid: str) -> Path:
        """What belongs to a job, with its working directory and the manifest of what was sent."""
        return self.jobs / job_uid

    def work_folder(self, job_uid: str) -> Path:
        """The home directory of all attempts of a job."""
        return self.jobs.joinpath(job_uid, WORK_FOLDER)

    def attempt_folder(self, key: GangKey) -> Path:
        """What belongs to one attempt."""
        return self.jobs.joinpath(key.job_uid, str(key.attempt))

    def temporary_folder(self, key: GangKey) -> Path:
        """The ``/tmp`` of one attempt, or that of each of its tasks below it."""
        return self.attempt_folder(key) / TEMPORARY_FOLDER

    def log_folder(self, key: GangKey) -> Path:
        """The output of one attempt's processes."""
        return self.attempt_folder(key) / "logs"

    def forget(self, job_uid: str) -> None:
        """Drop everything of the job but its gates, which keep attempts from starting again."""
        for attempt in self.attempts(job_uid):
            # On the disk before its name is: what a power cut leaves must still be a gate, and
            # closed. Before the report goes: without one, an attempt whose supervisor lives on for
            # other jobs would seem to be staging.
            _replace(f"{self.gates}/{job_uid}.{attempt}", json.dumps(Gate().__dict__), sync=True)
            failpoints.here("ledger.forget.begun")
            for leftover in (
                self.reports / f"{job_uid}.{attempt}.json",
                self.stops / f"{job_uid}.{attempt}",
            ):
                leftover.unlink(missing_ok=True)
            for folder in (self.stacks, self.restarts):
                for request in folder.glob(f"{job_uid}.{attempt}.*"):
                    request.unlink(missing_ok=True)
        failpoints.here("ledger.forget.between")
        self.kept_disk.drop(job_uid)
        # Read before the folder is removed, which carries the number of its project.
        project = self.projects.of_job(job_uid, self.work_folder(job_uid))
        remove(self.jobs / job_uid)
        self.projects.free(project)

    def clear_drafts(self) -> None:
        """Drop what processes that are gone were about to write."""
        for folder in (self.gates, self.reports, self.stops, self.stacks, self.restarts):
            for draft in folder.glob(".*"):
                if not _has_writer(draft):
                    draft.unlink(missing_ok=True)

    def prune(self) -> None:
        """Drop gates of jobs that were forgotten long ago, and drafts of processes that are
        gone.
        """
        self.clear_drafts()
        oldest = time.time() - _GATES_KEPT.total_seconds()
        for uid in self.known_jobs():
            # Keep the gates: a job that still exists may be reconciled again.
            if (self.jobs / uid).exists():
                continue
            for attempt in self.attempts(uid):
                gate = self.gates / f"{uid}.{attempt}"
                with contextlib.suppress(FileNotFoundError):
                    if gate.stat().st_mtime < oldest:
                        gate.unlink()


def _report(document: bytes) -> ObservedGang:
    return codec.decode(ObservedGang, json.loads(document), ignore_unknown=True)


_known_report = functools.lru_cache(_KNOWN_REPORTS)(_report)
"""Several passes for a job see the same report."""


def lost(report: ObservedGang, gate: Gate) -> ObservedGang:
    """The report of a gang whose supervisor is gone without a word."""
    if gate.boot != boot_id():
        reason, message = Reason.NODE_LOST, "the machine restarted while the attempt was running"
    else:
        reason, message = (
            Reason.SUPERVISOR_LOST,
            "the attempt's supervisor was killed; its processes ended with it",
        )
    now = datetime.now(UTC)
    processes = tuple(
        p
        if p.reason
        else replace(p, running=False, reason=reason, message=message, finished_at=now)
        for p in report.processes
    )
    return replace(
        report, state=GangState.LOST, reason=reason, message=message, processes=processes
    )


def is_alive(gate: Gate) -> bool:
    """Whether the claiming supervisor lives: same boot, same process id, same start."""
    return gate.boot == boot_id() and process_start(gate.pid) == gate.started


def process_start(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; ``None`` if there is none or it is a
    zombie.
    """
    try:
        # The second field is the program's name, which may hold spaces and parentheses: the last
        # ')' ends it. What follows begins with field 3, the state; the start time is field 22
        # (proc(5)).
        fields = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@functools.cache
def boot_id() -> str:
    """Changes when the machine restarts."""
    return content("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def _is_taken(request: Path) -> bool:
    try:
        request.unlink()
    except FileNotFoundError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reports and requests are not synced to disk: after a power cut the boot id in the gate shows
# that the attempt is over. At worst one that had ended counts as NodeLost.
def _replace(path: str, text: str, *, sync: bool = False) -> None:
    draft = _draft(path)
    try:
        small_files.write(draft, text.encode(), sync=sync)
        failpoints.here("ledger.write.before")
        os.replace(draft, path)  # noqa: PTH105
    except OSError:  # a full disk
        _unlink(draft)
        raise


def _draft(path: str) -> str:
    # The dot keeps drafts out of listings of gates. The process id tells whether the writer still
    # lives.
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{os.getpid()}.{time.monotonic_ns()}"


def _unlink(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def _has_writer(draft: Path) -> bool:
    """Whether the process that made it lives, as far as its name tells."""
    pid = draft.name.split(".")[-2]
    return pid.isdigit() and process_start(int(pid)) is not None
