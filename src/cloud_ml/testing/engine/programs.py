"""How an engine spells what a process does."""

from __future__ import annotations

from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import GangKey

LISTENING = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    with listener.accept()[0] as connection:
        connection.sendall(sys.argv[2].encode())
"""
"""A program that sends its second argument to each who connects to the socket that is its first."""

SERVING = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as listener, listener.accept()[0] as connection:
    connection.sendall(sys.argv[2].encode())
"""
ASKING = """
import socket, sys, time
while True:
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
print(connection.makefile().read())
"""

HANGING = """
import faulthandler, signal, threading
faulthandler.register(signal.SIGURG, file=2)  # as each interpreter of a job does at its start
def hang():
    print("ready", flush=True)
    threading.Event().wait()
hang()
"""

COMPUTING = """
import time
while time.process_time() < 2:
    pass
"""


class Programs:
    """The commands of processes; an engine that runs none overrides them."""

    restarts_tasks = True
    """Whether this engine can tell that no process of a task lives any more. One that cannot ends
    the gang where another starts the task again.
    """

    node_memory: tuple[int, ...] = ()
    """The memory of each machine of an engine of several, which has a queue of its own for gangs
    that have no place.
    """

    def lose_node(self, engine: Engine, node: str) -> None:
        """Have one of several machines vanish."""
        raise NotImplementedError

    def preempt(self, engine: Engine, key: GangKey, task: str) -> None:
        """Have an engine with a queue of its own give the place of a task to others."""
        raise NotImplementedError

    isolates_gangs = True
    """Whether this engine can give a gang a network of its own."""

    def serving(self, port: int, text: str) -> tuple[str, ...]:
        """Sends the text to the first who connects to the port, and ends."""
        return ("python3", "-c", SERVING, str(port), text)

    def calling(self, host: str, port: int, text: str) -> tuple[str, ...]:
        """Prints what it gets from there, which is ``text``."""
        del text
        return ("python3", "-c", ASKING, host, str(port))

    def printing(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", f"echo {text}")

    def exiting(self, code: int) -> tuple[str, ...]:
        return ("sh", "-c", f"exit {code}")

    def failing(self, text: str, code: int) -> tuple[str, ...]:
        return ("sh", "-c", f"echo {text}; exit {code}")

    def waiting(self) -> tuple[str, ...]:
        return ("sh", "-c", "echo waiting; exec sleep 600")

    def stubborn(self) -> tuple[str, ...]:
        return ("sh", "-c", "trap '' TERM; echo waiting; while true; do sleep 1; done")

    def reading_notice(self) -> tuple[str, ...]:
        script = """trap 'cat "$CLOUDML_NOTICE"; exit' TERM; echo; while :; do sleep 0.05; done"""
        return ("sh", "-c", script)

    def leaving_first(self) -> tuple[str, ...]:
        """Prints ``ready``. When told to stop, it waits until the next one has its notice, prints
        ``leaving`` and ends.
        """
        leave = "until [ -e noticed ]; do sleep 0.05; done; echo leaving; exit"
        script = f"trap '{leave}' TERM; echo ready; touch first; while :; do sleep 0.05; done"
        return ("sh", "-c", script)

    def leaving_last(self) -> tuple[str, ...]:
        """Prints ``ready``, and ``leaving`` when told to stop."""
        script = """trap 'echo leaving; exit' TERM; echo ready; touch last
            until [ -e "$CLOUDML_NOTICE" ]; do sleep 0.05; done; touch noticed
            while :; do sleep 0.05; done"""
        return ("sh", "-c", script)

    def ending_when_ready(self) -> tuple[str, ...]:
        """Ends well when these two have said ``ready``."""
        return ("sh", "-c", "until [ -e first -a -e last ]; do sleep 0.05; done")

    def showing(self, file: str) -> tuple[str, ...]:
        return ("sh", "-c", f"cat {file}")

    def showing_parameters(self) -> tuple[str, ...]:
        """Prints the file of its parameters, whose path it has as an argument."""
        return ("sh", "-c", '[ "$0" = "$CLOUDML_PARAMETERS" ] && cat "$0"', "{parameters_file}")

    def resolving(self, host: str) -> tuple[str, ...]:
        program = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
        return ("python3", "-c", program, host)

    def hanging(self) -> tuple[str, ...]:
        """A Python program that prints ``ready``, and whose function ``hang`` never returns."""
        return ("python3", "-c", HANGING)

    def talking(self) -> tuple[str, ...]:
        """Says something ten times a second, and ends well after three of them."""
        return ("sh", "-c", "for i in $(seq 30); do echo $i; sleep 0.1; done")

    def computing(self) -> tuple[str, ...]:
        """Uses two seconds of processor time without a word, and ends well."""
        return ("python3", "-c", COMPUTING)

    def computing_after(self, step: int) -> tuple[str, ...]:
        """Reports a step before that."""
        report = f'echo "{{\\"time\\": 1, \\"step\\": {step}}}" >> $CLOUDML_PROGRESS'
        return ("sh", "-c", f'{report}; exec python3 -c "$0"', COMPUTING)

    def reporting(self, step: int) -> tuple[str, ...]:
        """Reports a step as ``cloud_ml.job`` does, writes ``events`` to an event file in the folder
        ``logs``, prints ``ready`` and waits.
        """
        line = f'{{\\"time\\": 1, \\"step\\": {step}}}'
        figures = f'{{\\"time\\": 1, \\"step\\": {step}, \\"metrics\\": {{\\"loss\\": 0.5}}}}'
        script = f'echo "{figures}" >> $CLOUDML_METRICS; echo "{line}" >> $CLOUDML_PROGRESS'
        events = "mkdir -p logs; printf events > logs/events.out.tfevents.1"
        return ("sh", "-c", f"{script}; {events}; echo ready; exec sleep 600")

    def appending(self) -> tuple[str, ...]:
        """Prints ``ready``, and adds to that event file ten times a second for ever."""
        events = "printf events >> logs/events.out.tfevents.1"
        return ("sh", "-c", f"mkdir -p logs; echo ready; while {events}; do sleep 0.1; done")

    def listening(self, name: str, text: str) -> tuple[str, ...]:
        return ("python3", "-c", LISTENING, name, text)

    def occupying(self, port: int) -> tuple[str, ...]:
        """Listens on a port that it was not given, prints ``ready`` and waits."""
        program = (
            "import socket, sys, time; made = socket.create_server(('', int(sys.argv[1]))); "
            "print('ready', flush=True); time.sleep(600)"
        )
        return ("python3", "-c", program, str(port))
