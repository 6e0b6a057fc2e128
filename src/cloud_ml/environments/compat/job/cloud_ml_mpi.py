"""Starts the processes of an MPI job in its tasks, without SSH and without keys.

Standard library only, and the syntax of Python 3.6, since any runtime may run it. It is run in
three ways:

``launch SIZE -m MODULE ARGUMENTS``
    In the launcher: runs ``mpiexec``, which is to start one process in each worker.
``agent WORKER COMMAND``
    In the launcher, started by ``mpiexec`` in the place of ``ssh``: hands the command to a worker.
``work``
    In a worker: waits for one command, and runs it.

Worker and agent meet at a socket in the working directory, which only the tasks of this job share.
No other job reaches it, as it would a port. It is gone once the command has come.

When the job is to stop, the platform sends SIGTERM to the main process of each task. Open MPI would
kill everything at once. So this stays the main process, and hands the signal to the user's
processes only: they have the time that the stop grants, to save what they have.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

_LONGEST_COMMAND = 1 << 20
_LONGEST_WAIT_S = 0.5
_LENGTH = struct.Struct("!I")
_NO_MPIEXEC = (
    "cloudml: there is no mpiexec in the environment of the job: "
    "add the line openmpi to requirements.txt"
)


def launch(size, words):
    """Run ``mpiexec`` with so many processes that run ``python WORDS``."""
    mpiexec = shutil.which("mpiexec")
    if mpiexec is None:
        sys.exit(_NO_MPIEXEC)
    agent = f"{sys.executable} {os.path.abspath(__file__)} agent"
    command = [mpiexec, "-n", str(size), "--bind-to", "none"]
    command += ["--host", ",".join(f"worker-{index}:1" for index in range(size))]
    command += ["--prtemca", "plm_ssh_agent", agent]
    if os.geteuid() == 0:  # who the job is, is the platform's business, and not Open MPI's
        command += ["--allow-run-as-root"]
    # A daemon that leaves its session forks, and ends: its task would be over then.
    command += ["--prtemca", "prte_leave_session_attached", "1"]
    # Without "-m mpi4py", the others wait for ever for a process that has raised an exception.
    _run([*command, sys.executable, "-m", "mpi4py", *words], _stop_agents)


def agent(worker, words):
    """Hand a command to a worker, and wait until that has ended, as ``ssh`` would."""
    command = os.fsencode(" ".join(words))
    connection = _connect(_path(worker))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # see _stop_agents
    connection.sendall(_LENGTH.pack(len(command)) + command)
    connection.recv(1)


def work():
    """Wait for one command, and run it."""
    path = _path("{CLOUDML_ROLE}-{CLOUDML_INDEX}".format(**os.environ))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.lexists(path):  # of an earlier attempt
        os.unlink(path)
    before = os.umask(0o177)
    listener.bind(path)
    os.umask(before)
    listener.listen(1)
    connection, _ = listener.accept()
    os.unlink(path)
    listener.close()
    command = _receive(connection)
    _run(["/bin/sh", "-c", command], _stop_ranks)


def _path(worker):
    """Relative: the path of a socket is short, and the working directory may lie deep."""
    return ".cloudml-mpi-{}-{}".format(os.environ["CLOUDML_ATTEMPT"], worker)


def _run(command, stop):
    """Run a command to its end, and end as it has. On SIGTERM, ``stop`` is called with its number.

    The agent sees the end when the connection is closed, with everything else.
    """
    started, stop_requests = [], []

    def on_stop(*_):
        stop_requests.append(True)
        if started:
            stop(started[0].pid)

    signal.signal(signal.SIGTERM, on_stop)
    started.append(subprocess.Popen(command))  # noqa: S603 - it is what the job is for
    if stop_requests:  # while it was started
        stop(started[0].pid)
    code = started[0].wait()
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL cannot be handled in another way
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _stop_agents(mpiexec):
    """Those that have handed over their command ignore it. One that waits for a worker, which may be
    gone, would wait for ever: Open MPI gives up without it.
    """
    agents = [pid for pid, _ in _descendants(mpiexec)]
    for pid in agents or [mpiexec]:
        _send(pid, signal.SIGTERM)


def _stop_ranks(shell):
    """The user's processes are children of Open MPI's. Before there are any, everything ends."""
    below = _descendants(shell)
    ranks = [pid for pid, parent in below if _is_rank(pid) and not _is_rank(parent)]
    for pid in ranks or [shell, *(pid for pid, _ in below)]:
        _send(pid, signal.SIGTERM)


def _descendants(root):
    """The number of each process below one, and that of its parent."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name before the last parenthesis may have any characters.
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:  # it has ended
                continue
    below = {root}
    while True:
        found = {pid for pid, parent in parents.items() if parent in below} - below
        if not found:
            return [(pid, parents[pid]) for pid in below - {root}]
        below |= found


def _is_rank(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0OMPI_COMM_WORLD_RANK=" in b"\0" + file.read()
    except OSError:
        return False


def _send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _connect(path):
    """A connection to a worker, once that listens."""
    pause_s = 0.01
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        failed = connection.connect_ex(path)
        if not failed:
            return connection
        if failed not in (errno.ENOENT, errno.ECONNREFUSED):
            sys.exit(f"cloudml: no worker is reached at {path}: {os.strerror(failed)}")
        connection.close()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_WAIT_S)


def _receive(connection):
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if length > _LONGEST_COMMAND:
        message = "cloudml: a command of {} bytes came; allowed are {}"
        sys.exit(message.format(length, _LONGEST_COMMAND))
    return os.fsdecode(_receive_exactly(connection, length))


def _receive_exactly(connection, count):
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            sys.exit("cloudml: the launcher has ended before its command was complete")
        found += part
    return found


def main(what, *words):
    """Do what the command line says."""
    if what == "launch":
        launch(int(words[0]), words[1:])
    elif what == "agent":
        agent(words[0], words[1:])
    elif what == "work":
        work()
    else:
        sys.exit(f"cloudml: {what!r} is unknown; allowed are launch, agent, work")


if __name__ == "__main__":
    main(*sys.argv[1:])
