"""A job of ``gang_trainer`` that stops at chosen moments, and what must hold of it at its end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cloud_ml.client import CloudMlClient
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import WaitTimedOut
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from faults import gang_trainer, memory_hog
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

PACKAGE = "fds://cloudml/gang-1.0.tar.gz"
GANG: dict[str, Any] = {
    "recipe": "cluster",
    "cluster_spec": {"chief": {}, "worker": {"count": 2}, "ps": {}, "evaluator": {}},
}
COMMANDS = ("prepare", "finish")
_LIMIT_S = 120.0

Hold = tuple[str, str]
"""A moment, and the task that stops at it."""


def upload(server: RealServer, folder: Path) -> None:
    """Have the package of the trainer in the default bucket."""
    source = Path(gang_trainer.__file__).read_text("utf-8")
    file = pack(trainer(folder, source), folder / "gang-1.0.tar.gz")
    server.client().storage.upload(file, PACKAGE)


DEFAULTS: dict[str, Any] = {
    "trainer_uri": PACKAGE,
    "framework": "python",
    "memory_limit": "64M",
}
"""Fields of jobs of ``gang_trainer``."""


class Scene:
    """A job, and the folder that its tasks write into.

    Args:
        server: Where it runs.
        client: Submits it.
        name: Of the job, and of its folder in the default bucket.
        fields: Of the job, beside ``DEFAULTS``.
        holds: Where its tasks stop.
        victim: The task, or the command, that may be told to end.
        limit_s: How long anything of it may take.
        program: What the victim runs.
        variable: One that only the victim has, of the processes of its task.
        prints_for: The task whose log has what others print.
    """

    def __init__(
        self,
        server: RealServer,
        client: CloudMlClient,
        name: str,
        fields: dict[str, Any],
        holds: Sequence[Hold] = (),
        victim: str = "",
        limit_s: float = _LIMIT_S,
        program: str = "python",
        prints_for: str = "",
        variable: str = "",
    ) -> None:
        self._program = program
        self._variable = variable
        self._prints_for = prints_for
        self._limit_s = limit_s
        self._server = server
        self._client = client
        self._victim = victim
        self._holds = holds
        self.place = server.bucket(name)
        self.place.mkdir()
        self.place.chmod(0o777)  # the tasks have a user of their own
        for moment, task in holds:
            self._make_pipe(f"gate-{moment}-{task}")
        if victim:
            self._make_pipe(f"orders-{victim}")
        words = [word for moment, task in holds for word in ("--hold", f"{moment}:{task}")]
        commands = {
            f"{which}_command": f"python -m trainer.task $CLOUDML_STORAGE/cloudml/{name} "
            f"{' '.join(words)} --as {which}"
            for which in COMMANDS
            if (which, which) in holds
        }
        self.handle: JobHandle = client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                job_args=[f"fds://cloudml/{name}", *words],
                **DEFAULTS | fields | commands,
            )
        )

    # ---- while it runs

    def await_holds(self) -> None:
        """Wait until each task stands where it is to stop."""
        for hold in self._holds:
            self.await_hold(hold)

    def await_hold(self, hold: Hold) -> None:
        """Wait until the task stands at the moment."""
        self._await("reached-{}-{}".format(*hold))

    def order(self, word: str) -> None:
        """Tell the victim to end, or to hang."""
        self._write(f"orders-{self._victim}", word.encode())

    def have_it_hang(self) -> None:
        """Tell the victim to hang, and wait until it does."""
        self.order("hang")
        self._await(f"hangs-{self._victim}")

    def raise_in_victim(self) -> None:
        """Have the victim raise an error where it stands."""
        (moment,) = (moment for moment, task in self._holds if task == self._victim)
        self._write(f"gate-{moment}-{self._victim}", b"!")

    def send(self, number: int) -> None:
        """Send the victim a signal from outside."""
        os.kill(self._process(), number)

    def exhaust_memory(self) -> None:
        """Use up the memory of the victim's task by another process. The kernel kills the victim."""
        memory_hog.exhaust(self._process())

    def kill_supervisor(self) -> None:
        """SIGKILL."""
        gate = self._server.ledger.gate(GangKey(self.handle.uid, 1))
        assert gate is not None
        os.kill(gate.pid, signal.SIGKILL)

    def await_restart(self) -> None:
        """Wait until the victim has started again."""
        self._await(f"start-{self._victim}-1-1")

    def await_end_of_task(self) -> None:
        """Wait until the engine has told of the victim's end."""

        def ended() -> bool:
            seen = self._server.observed(self.handle.uid)
            found = [one for one in seen.processes if one.name == self._victim] if seen else []
            return bool(found) and not found[0].running

        eventually(ended, f"the end of {self._victim} is told", limit_s=self._limit_s)

    def open_gates(self, *, without_victim: bool = False) -> None:
        """Let those go on who stand at their moments."""
        for moment, task in self._holds:
            if not (without_victim and task == self._victim):
                self._write(f"gate-{moment}-{task}", b".")

    def end(self) -> Job:
        """The job at its end. One that does not end is removed: it would be in the way of others."""
        try:
            return self.handle.wait(self._limit_s)
        except WaitTimedOut:
            self._client.delete_train_job(self.handle.name)
            raise

    def _process(self) -> int:
        command = f"--as {self._victim}" if self._victim in COMMANDS else ""
        role, _, index = self._victim.rpartition("-")

        def found() -> int:
            for pid in self._server.processes_of(self.handle.uid):
                with suppress(psutil.Error, IndexError):
                    process = psutil.Process(pid)
                    words, environment = process.cmdline(), process.environ()
                    own = (
                        environment.get("CLOUDML_ROLE", "master"),
                        environment.get("CLOUDML_INDEX", "0"),
                    )
                    if not Path(words[0]).name.startswith(self._program):
                        continue
                    if self._variable and self._variable not in environment:
                        continue
                    if " ".join(words).endswith(command) if command else own == (role, index):
                        return pid
            return 0

        pid: int = eventually(found, f"{self._victim} runs")
        return pid

    def _await(self, name: str) -> None:
        def there() -> bool:
            if (self.place / name).exists():
                return True
            if self._server.process is None:
                return False
            job = self.handle.refresh()
            assert not job.finished, f"{name} will not be: {job.phase}, {job.message}\n{self.log()}"
            return False

        eventually(there, name, limit_s=self._limit_s)

    def _make_pipe(self, name: str) -> None:
        os.mkfifo(self.place / name)
        (self.place / name).chmod(0o666)

    def _write(self, name: str, words: bytes) -> None:
        """Write into a pipe, as soon as somebody reads it."""

        def opened() -> int:
            with suppress(OSError):  # nobody reads it yet
                return os.open(self.place / name, os.O_WRONLY | os.O_NONBLOCK)
            return 0

        descriptor = eventually(opened, f"somebody reads {name}", limit_s=self._limit_s)
        os.write(descriptor, words)
        os.close(descriptor)

    # ---- what must hold at its end

    def wrong(self, *, whole_log: bool = True) -> list[str]:
        """What does not hold. Without ``whole_log``, the end of what was printed may be missing."""
        return [
            *self._ran_twice(),
            *self._lost_work(),
            *self._lost_lines(whole_log=whole_log),
            *invariants.left_behind(self._server),
        ]

    def _ran_twice(self) -> list[str]:
        return [path.name for word in ("twice", "overlap") for path in self.place.glob(f"{word}-*")]

    def _lost_work(self) -> list[str]:
        """Restored states that are more than an interval behind."""
        wrong, reached = [], 0
        steps = self.place / "steps"
        for line in steps.read_text().splitlines() if steps.exists() else ():
            word, step = line.split()
            if word == "from" and reached - int(step) > gang_trainer.INTERVAL:
                wrong.append(f"restored from step {step}, and step {reached} was made before")
            reached = max(reached, int(step))
        return wrong

    def _lost_lines(self, *, whole_log: bool) -> list[str]:
        """Lines that were printed and are not in the log of the task, or not in that of all."""
        wrong = []
        tasks = [task.name for task in self.handle.refresh().tasks]
        merged = self.log()
        logs = {task: b"".join(self.handle.logs(task=task)).decode() for task in tasks}
        for noted in self.place.glob("printed-*"):
            name, start = re.fullmatch(r"printed-(.+)-(\d+-\d+)", noted.name).groups()  # type: ignore[union-attr]
            least = noted.stat().st_size
            own = logs.get(self._prints_for or name, next(iter(logs.values()), merged))
            pattern = rf"^(?:\[[a-z]+-\d+\] )?line {name} {start} (\d+) "
            for text in (own, merged):
                lines = [int(found) for found in re.findall(pattern, text, re.MULTILINE)]
                # One that was printed a moment before the end may not be noted.
                enough = least <= len(lines) <= least + 1 if whole_log else len(lines) <= least + 1
                if lines != list(range(len(lines))) or not enough:
                    wrong.append(f"{noted.name}: {least} lines, and in the log are {lines}")
        return wrong

    def log(self) -> str:
        """What all tasks have printed."""
        return b"".join(self.handle.logs()).decode()
