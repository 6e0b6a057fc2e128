"""Slurm as it runs on one node, with Debian's programs and a configuration of our own: nothing
of it stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness import STAMP, clean_python, free_port, median, temporary_folder
from load.machine import memory_mb

from peers.having import Absent

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "sinfo")
_READY_S = 30.0
_CONF = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


class Slurm:
    """A cluster of one node."""

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self._folder = folder
        self._pids = pids

    @property
    def memory_mb(self) -> float:
        """Of its three daemons."""
        return memory_mb(self._pids)

    def start_ms(self) -> float:
        """From ``srun`` to the first line of the program, in milliseconds."""
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        output = self.run("srun", "-n1", "-Q", clean_python(), "-c", STAMP)
        return 1000 * (float(output) - began)

    def batch_start_ms(self) -> float:
        """The same by ``sbatch``, which returns when the job is queued."""
        out = self._folder / f"out-{time.monotonic_ns()}"
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.run(
            "sbatch", "-n1", "-W", "-o", out, "--wrap", f"{clean_python()} -c '{STAMP.strip()}'"
        )
        return 1000 * (float(out.read_text()) - began)

    def gang_start_seconds(self, tasks: int) -> float:
        """From ``sbatch`` to the first line of the last of several tasks, which ``srun`` starts."""
        out = self._folder / f"out-{time.monotonic_ns()}"
        (script := self._folder / "stamp.py").write_text(STAMP)
        step = f"srun -O -n{tasks} {clean_python()} {script}"
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.run("sbatch", "-O", f"-n{tasks}", "-W", "-o", out, "--wrap", step)
        lines = out.read_text().split()
        if len(lines) != tasks:
            raise Absent(f"Slurm started {len(lines)} of {tasks} tasks: {out.read_text()[-300:]}")
        return max(map(float, lines)) - began

    def rate(self, jobs: int) -> float:
        """Jobs a second over their whole life, two at a time."""
        mark = self._folder / "done"
        mark.write_bytes(b"")
        began = time.monotonic()
        for _ in range(jobs):
            self.run(
                "sbatch",
                "-n1",
                "-o",
                "/dev/null",
                "--wrap",
                f"{clean_python()} -c pass && echo x >> {mark}",
            )
        while mark.stat().st_size < 2 * jobs:
            time.sleep(0.02)
            if time.monotonic() - began > 120:
                raise Absent("Slurm does not run its jobs")
        return jobs / (time.monotonic() - began)

    def run(self, *command: str | Path) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self._folder / "slurm.conf")}
        done = subprocess.run(
            command, env=environment, capture_output=True, cwd="/", timeout=120, check=False
        )
        if done.returncode:
            raise Absent(f"{command[0]}: {done.stderr.decode()[-300:]}")
        return done.stdout.decode()


@contextlib.contextmanager
def cluster() -> Iterator[Slurm]:
    """Slurm, ready.

    Raises:
        Absent: A program is missing, we are not root, or it does not come up.
    """
    paths = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in PROGRAMS}
    if missing := [name for name, path in paths.items() if path is None]:
        raise Absent(
            f"{', '.join(missing)} missing: apt-get install slurmctld slurmd slurm-client munge"
        )
    if os.geteuid() != 0:
        raise Absent("its daemons are started as root here")
    with temporary_folder() as folder, contextlib.ExitStack() as stack:
        folder.chmod(0o755)
        host = socket.gethostname().split(".")[0]
        ports = {"controller": free_port(), "node": free_port()}
        (folder / "slurm.conf").write_text(_CONF.format(folder=folder, host=host, **ports))
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        commands = [
            [
                paths["munged"],
                "-F",
                "-f",
                f"--key-file={key}",
                f"--socket={folder}/munge.socket",
                f"--log-file={folder}/munged.log",
                f"--pid-file={folder}/munged.pid",
                f"--seed-file={folder}/seed",
            ],
            [paths["slurmctld"], "-D", "-c", "-f", f"{folder}/slurm.conf"],
            [paths["slurmd"], "-D", "-N", host, "-f", f"{folder}/slurm.conf"],
        ]
        pids = []
        for command in commands:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
            stack.callback(_stop, process)
            pids.append(process.pid)
            time.sleep(0.5)
        slurm = Slurm(folder, pids)
        deadline = time.monotonic() + _READY_S
        while "idle" not in _quietly(slurm):
            if time.monotonic() > deadline:
                log = "".join(file.read_text()[-300:] for file in folder.glob("*.log"))
                raise Absent(f"Slurm did not become ready: {log[-500:]}")
            time.sleep(0.2)
        yield slurm


def measure(rounds: int, jobs: int) -> tuple[list[tuple[str, float, float, float]], str]:
    """What was measured, by way of submitting: (name, median start, jobs/s, memory); and the
    version.
    """
    with cluster() as slurm:
        version = slurm.run("sinfo", "--version").split()[-1]
        slurm.start_ms()
        first = median([slurm.start_ms() for _ in range(rounds)])
        batch = median([slurm.batch_start_ms() for _ in range(3)])
        rate, memory = slurm.rate(jobs), slurm.memory_mb
    return [("Slurm srun", first, rate, memory), ("Slurm sbatch", batch, rate, memory)], version


def _quietly(slurm: Slurm) -> str:
    try:
        return slurm.run("sinfo", "-h", "-o", "%T")
    except Absent:
        return ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
