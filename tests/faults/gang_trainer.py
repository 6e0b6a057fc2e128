"""A job that trains on several tasks and can be stopped at named moments: the module of the jobs
in ``test_task_deaths``. Standard library only.

A parameter server holds the weights. In each step the chief and each worker send it a gradient, and
it adds them in the order of ranks, so the result depends on nothing but the number of steps. The
chief saves a checkpoint every ``INTERVAL`` steps. A job of one task does all of it by itself.

Its first argument is a folder. There each start leaves ``start-TASK-ATTEMPT-RESTART``, and holds
``lock-TASK``. ``--hold MOMENT:TASK`` makes a task stop when it first gets to a moment: it leaves
``reached-MOMENT-TASK``, and goes on when a byte comes through the pipe ``gate-MOMENT-TASK``, or
raises an error if it is ``!``. Through the pipe ``orders-TASK`` it can be told to end: ``exit`` or
``memory``; a parameter server and an evaluator also to ``hang``, and then they leave ``hangs-TASK``.
"""

import contextlib
import fcntl
import itertools
import json
import math
import os
import pathlib
import random
import socket
import sys
import threading
import time

from cloud_ml import job

STEPS, INTERVAL, HELD_STEP = 12, 5, 7
CHIEFS, WORKERS = ("chief", "master"), ("worker",)
_RETRY_S = 0.02
_STANDSTILL = threading.Lock()
"""Held for ever by who is told to hang."""
_IDLE_S = 0.2
"""Between two looks of a task that only waits: more of them are a sign of life on a slow machine,
where a hang is to be found.
"""


class Task:
    """What the task is called, and what it leaves in the folder."""

    def __init__(self, arguments):
        cluster = job.cluster()
        self.role, self.index = cluster.role, cluster.task_index
        self.name = f"{self.role}-{self.index}"
        self.place = pathlib.Path(arguments[0])
        self.command = arguments[arguments.index("--as") + 1] if "--as" in arguments else ""
        if self.command:  # the prepare or the finish command
            self.name = self.command
        self.holds = [value for flag, value in itertools.pairwise(arguments) if flag == "--hold"]
        attempt = os.environ["CLOUDML_ATTEMPT"]
        restart = os.environ.get("CLOUDML_TASK_RESTART", "0")
        self.start = f"{attempt}-{restart}"
        self.lines = 0

    def note_start(self):
        """Say that this start happens, which may happen once, and beside no other."""
        try:
            self._create(f"start-{self.name}-{self.start}")
        except FileExistsError:
            self._create(f"twice-{self.name}-{self.start}-{time.time_ns()}")
        self.lock = (self.place / f"lock-{self.name}").open("a")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._create(f"overlap-{self.name}-{self.start}")

    def say(self, text):
        """Print a line, then note that it was printed."""
        os.write(1, f"line {self.name} {self.start} {self.lines} {text}\n".encode())
        self.lines += 1
        with (self.place / f"printed-{self.name}-{self.start}").open("a") as file:
            file.write(".")

    def note_step(self, word, step):
        """Note a step that was made (``step``), or from which a state was restored (``from``)."""
        with (self.place / "steps").open("a") as file:
            file.write(f"{word} {step}\n")

    def here(self, moment):
        """The task is at a moment. It may have to wait until its gate is opened."""
        if f"{moment}:{self.name}" not in self.holds:
            return
        with contextlib.suppress(FileExistsError):
            self._create(f"reached-{moment}-{self.name}")
            with (self.place / f"gate-{moment}-{self.name}").open("rb") as gate:
                if gate.read(1) == b"!":
                    raise RuntimeError("the test says so")

    def follow_orders(self):
        """Do what comes through the pipe of orders."""
        pipe = self.place / f"orders-{self.name}"
        while pipe.exists():
            with pipe.open("r") as orders:
                for order in orders.read().split():
                    if order == "hang":
                        _STANDSTILL.acquire()
                        self._create(f"hangs-{self.name}")
                    obey(order)

    def _create(self, name):
        os.close(os.open(self.place / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def obey(order):
    """End in one of the ways in which tasks end."""
    if order == "exit":
        os._exit(1)
    if order == "memory":
        hoard = []
        while True:
            hoard.append(os.urandom(1 << 20))


class Model:
    """The state of a training: the step, weights, and the generator of random numbers."""

    def __init__(self):
        self.step, self.weights, self.random = 0, [1.0, -2.0, 3.0], random.Random(2016)

    def add(self, gradients):
        """Make a step with the gradients of all ranks, in their order."""
        for gradient in gradients:
            self.weights = [w - 0.1 * g for w, g in zip(self.weights, gradient, strict=True)]
        self.weights = [w + self.random.gauss(0, 0.01) for w in self.weights]
        self.step += 1

    def state(self):
        """All of it, for JSON, which keeps floats to the bit."""
        version, numbers, spare = self.random.getstate()
        return {
            "step": self.step,
            "weights": self.weights,
            "random": [version, list(numbers), spare],
        }

    @classmethod
    def of(cls, state):
        """The model with this state."""
        model = cls()
        version, numbers, spare = state["random"]
        model.step, model.weights = state["step"], state["weights"]
        model.random.setstate((version, tuple(numbers), spare))
        return model


def gradient_of(rank, state):
    """The gradient of a rank at a state."""
    return [math.sin(w * (rank + 1) + state["step"]) for w in state["weights"]]


def restored(task):
    """The model as the platform says that it was saved last."""
    path = os.environ.get("CLOUDML_RESTORE_FROM")
    model = Model.of(json.loads(pathlib.Path(path).read_text())) if path else Model()
    task.note_step("from", model.step)
    return model


def save(task, state):
    """Save a checkpoint: whole, or not at all."""
    step = state["step"]
    path = pathlib.Path(job.checkpoint_dir(), f"step-{step}.json")
    draft = path.with_suffix(".part")
    text = json.dumps(state)
    with draft.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        task.here("saving")
        file.write(text[len(text) // 2 :])
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    job.saved(path, step)
    task.say(f"saved {step}")


def must_save(state):
    """Whether a checkpoint of this step is due, and not there."""
    step, last = state["step"], job.latest()
    due = step == STEPS or (step > 0 and step % INTERVAL == 0)
    return due and (last is None or last.step != step)


def finish(task, state):
    """Leave the result."""
    task.here("finishing")
    draft = task.place / "result.part"
    draft.write_text(json.dumps(state))
    draft.rename(task.place / "result")
    task.say("finished")


def train_alone(task):
    """All in one task."""
    model = restored(task)
    while model.step < STEPS:
        if model.step == HELD_STEP:
            task.here("training")
        model.add([gradient_of(0, model.state())])
        task.note_step("step", model.step)
        task.say(f"step {model.step}")
        if must_save(model.state()):
            save(task, model.state())
    finish(task, model.state())


class Server:
    """The parameter server: holds the model, and makes a step when it has all gradients."""

    def __init__(self, task, ranks):
        self._task, self._ranks = task, ranks
        self._model = restored(task)
        self._gradients = {}
        self._changed = threading.Condition()

    def serve(self):
        """Answer for ever."""
        port = int(os.environ["CLOUDML_PORT"])
        with socket.create_server(("", port)) as listener:
            self._task.say("serves")
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection):
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                request = json.loads(line)
                with _STANDSTILL:
                    pass
                if "gradient" in request:
                    self._push(request)
                with self._changed:
                    state = self._model.state()
                lines.write(json.dumps(state) + "\n")
                lines.flush()

    def _push(self, request):
        """Take a gradient, and wait until its step is made."""
        with self._changed:
            if request["step"] != self._model.step:
                return
            self._gradients[request["rank"]] = request["gradient"]
            if len(self._gradients) == self._ranks:
                self._model.add([self._gradients[rank] for rank in range(self._ranks)])
                self._gradients = {}
                self._task.note_step("step", self._model.step)
                self._task.say(f"step {self._model.step}")
                self._changed.notify_all()
            self._changed.wait_for(lambda: request["step"] != self._model.step)


class Connection:
    """The line to the parameter server, which may die and come again."""

    def __init__(self, address):
        self._address = address
        self._lines = None

    def ask(self, request):
        """The state after a request; ``None`` if the server died meanwhile: its state is older."""
        try:
            if self._lines is None:
                self._connect()
            self._lines.write(json.dumps(request) + "\n")
            self._lines.flush()
            if answer := self._lines.readline():
                return json.loads(answer)
        except (OSError, ValueError):
            pass
        self._lines = None
        return None

    def _connect(self):
        host, _, port = self._address.rpartition(":")
        delay_s = _RETRY_S
        while self._lines is None:
            try:
                self._lines = socket.create_connection((host, int(port))).makefile("rw")
            except ConnectionRefusedError:
                time.sleep(delay_s)
                delay_s = min(2 * delay_s, _IDLE_S)


def state_of(server):
    """The state of the parameter server, as soon as it has one."""
    while (state := server.ask({})) is None:
        time.sleep(_RETRY_S)
    return state


def train(task, rank, ranks, address):
    """What the chief and the workers do."""
    server = Connection(address)
    state = state_of(server)
    while True:
        if task.role in CHIEFS and must_save(state):
            save(task, state)
        if state["step"] == STEPS:
            break
        if state["step"] == HELD_STEP:
            task.here("training")
        request = {"rank": rank, "step": state["step"], "gradient": gradient_of(rank, state)}
        state = server.ask(request) or state_of(server)
        task.say(f"saw {state['step']}")
    if task.role in CHIEFS:
        wait_for(task, ranks)
        finish(task, state)
        return
    task.here("finishing")
    (task.place / f"done-{rank}").touch()


def wait_for(task, ranks):
    """Wait until the workers are done."""
    while not all((task.place / f"done-{rank}").exists() for rank in range(1, ranks)):
        time.sleep(_IDLE_S)


def evaluate(task):
    """Look at each checkpoint, until somebody ends it."""
    seen = None
    while True:
        with _STANDSTILL:
            last = job.latest()
        if last is not None and last.step != seen:
            seen = last.step
            state = json.loads(pathlib.Path(last.path).read_text())
            task.say(f"evaluated {state['step']}: {sum(state['weights'])}")
        time.sleep(_IDLE_S)


def main():
    """Do what the role asks for."""
    task = Task(sys.argv[1:])
    task.note_start()
    threading.Thread(target=task.follow_orders, daemon=True).start()
    if task.command:
        task.say(task.command)
        task.here(task.command)
        return
    task.say("start")
    task.here("start")
    addresses = job.cluster().addresses
    if not addresses:
        train_alone(task)
        return
    trainers = [(role, n) for role in ("chief", "worker") for n in range(len(addresses[role]))]
    if task.role == "ps":
        Server(task, len(trainers)).serve()
    if task.role == "evaluator":
        evaluate(task)
    rank = trainers.index((task.role, task.index))
    train(task, rank, len(trainers), addresses["ps"][0])


if __name__ == "__main__":
    main()
