"""The contract of an engine. ``cloud_ml.testing.engine.EngineContract`` is the same in code.

An engine runs **gangs** (the processes of one attempt of one job) and reports what is. Every verb
is idempotent, "already gone" is success, and a fresh engine object sees what its predecessor
started. In particular:

====================================  ============================================================
situation                             what holds
====================================  ============================================================
``ensure`` twice, from anywhere       the gang is started once: an attempt is claimed exclusively
``stop`` before ``ensure``            a tombstone stands; the gang never starts
an attempt whose predecessors were    it is observed, shown and forgotten like any other
never asked for
a bucket of ``mounts`` is not there   ``Unavailable``: it was removed since the gang was planned
a bucket goes while the gang stages   the gang starts without it
the trainer's file is not there       no process starts; the attempt ends as ``TrainerNotFound``
``stop`` while it stages or runs      every process is gone soon after ``grace``; state ``Exited``
``stop`` after the end                nothing happens
the server dies                       the gang runs on; its end is told when the server is back
the gang's supervisor dies            its processes die with it; state ``Lost``
files outside the working directory   named at the end in ``unsaved_files``, if it can look
a gang of several without a network    its processes reach each other and nobody else; an engine
                                      that cannot do that says so (``Gangs``)
an engine with a queue of its own      state ``Waiting`` and its words; nothing of the gang is
has no place for the gang             anywhere, and its names resolve nowhere
one of several machines is lost       its own tasks end as ``NodeLost``; what follows is as for
                                      every end of a task, and costs no restart
the engine gives a place to others    the task ends as ``Preempted``; what follows is as for a lost
                                      machine, and an attempt that ends so costs no retry
the machine restarts                  state ``Lost``, reason ``NodeLost``
no process gives a sign of life       for ``hang_s``: all end as ``Hung``
a process reports its progress        ``progress`` tells it, and the gang's ``milestone`` at the end
stacks of a process are asked for     they are in its log, and it runs on
``forget``                            logs and folders go; the attempt still cannot start again
a process of a gang listens           it is reached at its ``address``, also after a server's restart,
                                      if the engine has ``Endpoints``
nobody listens                        ``Unavailable``; no other job answers
====================================  ============================================================
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import NO_DEFAULT_LIMITS, DefaultLimits
from cloud_ml.engines.abilities import WHOLE_LOG, LogView
from cloud_ml.engines.gang import Gang, GangKey


@dataclass(frozen=True)
class Capacity:
    """What the engine has in all. ``gpus`` counts devices.

    ``defaults`` are for work that names no limits. The processors may be promised
    ``cpu_overcommit`` times by limits; 0 for any number of times.
    """

    cpu_millis: int
    memory_bytes: int
    gpus: int = 0
    defaults: DefaultLimits = NO_DEFAULT_LIMITS
    cpu_overcommit: float = 0.0


@dataclass(frozen=True)
class JobPaths:
    """Where things will be for the processes of a gang, known before it starts.

    ``storage`` is the folder under which each bucket appears by its name; ``fds`` is where the
    job's own bucket appears. ``hosts`` has the host of each process of a gang of several, by its
    name: that name, or an address where names cannot be made known. ``addresses`` has their IP
    addresses as far as they are known so early. They listen on the interface ``interface``.
    ``shared_folder`` says whether all tasks have one working folder: machines without a common file
    system have none, and tasks there share what is in the bucket.
    """

    storage: str
    fds: str
    hosts: Mapping[str, str] = field(default_factory=dict)
    interface: str = "lo"
    addresses: Mapping[str, str] = field(default_factory=dict)
    shared_folder: bool = True


class Engine(abc.ABC):
    """Runs gangs and reports what is. See the table at the top of the module."""

    async def start(self) -> None:
        """Get ready; what a predecessor left running is found again."""

    async def close(self) -> None:
        """Let go of everything but the gangs, which run on."""

    @abc.abstractmethod
    async def ensure(self, gang: Gang) -> None:
        """Start the gang unless this attempt was started or stopped before.

        Returns when the hand-over is safe: from then on the gang starts even if the server dies.

        Raises:
            Unavailable: The engine cannot take it now, or a bucket is gone; nothing was started.
        """

    @abc.abstractmethod
    async def stop(self, key: GangKey, grace_s: float, why: Reason = Reason.CANCELLED) -> None:
        """End the gang: SIGTERM to all of its processes, then SIGKILL after ``grace_s``. Returns
        at once.

        All get SIGTERM at once, but for those that are ``stopped_last`` in the gang. Before that,
        each process finds the file that its variable ``CLOUDML_NOTICE`` names: JSON with
        ``reason``, which is ``why``, and ``deadline``, the time of SIGKILL in seconds since the
        epoch. That file is for all of them at once.

        A gang that is not claimed yet never will be.
        """

    @abc.abstractmethod
    async def observed(self, job_uid: str) -> Sequence[ObservedGang]:
        """Every attempt of the job that the engine knows of, as it is now."""

    @abc.abstractmethod
    def changes(self) -> AsyncIterator[str]:
        """Uids of jobs whose gangs may have changed: first those with a gang that lives, then as it
        happens.

        A hint that may come late or twice; callers also look again by themselves.
        """

    @abc.abstractmethod
    async def forget(self, job_uid: str) -> None:
        """Drop logs, folders and findings of a job whose gangs are over.

        Raises:
            Conflict: A gang of it is not over.
        """

    @abc.abstractmethod
    async def log_streams(self, job_uid: str) -> Sequence[tuple[int, str]]:
        """(attempt, process name) of every log that is kept, in the order they began.

        Beside those of several processes is ``ALL_TASKS``.
        """

    @abc.abstractmethod
    def logs(
        self,
        key: GangKey,
        process: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        view: LogView = WHOLE_LOG,
    ) -> AsyncIterator[bytes]:
        """A process's output in chunks.

        Args:
            key: Which attempt.
            process: The process's name, such as ``master-0``.
            lines: Only this many last lines.
            follow: Go on until the gang is over and all of its output was given.
            view: What of it.
        """

    @abc.abstractmethod
    def places(self, job_uid: str, tasks: Sequence[str] = ()) -> JobPaths:
        """Where things will be for the processes of this job's gangs.

        Args:
            job_uid: The job.
            tasks: The names of its processes, if they are to find each other.
        """

    @abc.abstractmethod
    async def capacity(self) -> Capacity:
        """What the engine has in all."""
