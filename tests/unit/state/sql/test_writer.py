"""Group commit: what gathers while the writer is busy shares one transaction, and nothing else."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from cloud_ml.errors import InvalidRequest, OutOfSpace, Unavailable
from cloud_ml.state.sql import writer
from cloud_ml.state.sql.writer import MAX_GROUP, Writer

Work = Callable[[Connection], object]


class Line(deque[Any]):
    """A line of tasks that tells when somebody has joined it."""

    def __init__(self) -> None:
        super().__init__()
        self._joined = threading.Semaphore(0)

    def append(self, task: Any) -> None:
        super().append(task)
        self._joined.release()

    def await_joined(self, count: int) -> None:
        for _ in range(count):
            assert self._joined.acquire(timeout=30)


class Machine:
    """A database with a table of numbers that counts its transactions, and a writer."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.commits = 0
        self.wakes = 0
        event.listen(engine, "commit", self._count)
        self.writer = Writer(engine, committed=self._woken)
        self.line = self.writer._waiting = Line()

    def _count(self, _: Connection) -> None:
        self.commits += 1

    def _woken(self) -> None:
        self.wakes += 1

    def numbers(self) -> list[int]:
        with self.engine.connect() as connection:
            return list(connection.exec_driver_sql("SELECT n FROM numbers ORDER BY n").scalars())

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a piece of work is under way."""
        started, finished = threading.Event(), threading.Event()

        def first(_: Connection) -> None:
            started.set()
            assert finished.wait(timeout=30)

        thread = threading.Thread(target=self.writer.run, args=(first,), kwargs={"wake": False})
        thread.start()
        assert started.wait(timeout=30)
        self.line.await_joined(1)
        try:
            yield
        finally:
            finished.set()
            thread.join()
        self.commits -= 1

    def run_together(self, works: list[Work]) -> list[object]:
        """Let all works gather behind one that is under way, then let go; the outcome of each."""

        def run(work: Work) -> object:
            try:
                return self.writer.run(work)
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(works)) as pool:
            with self.busy():
                outcomes = []
                for work in works:
                    outcomes.append(pool.submit(run, work))
                    self.line.await_joined(1)
            return [outcome.result() for outcome in outcomes]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    engine = create_engine(
        f"sqlite:///{tmp_path}/numbers.db", connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def manual(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
    yield Machine(engine)
    engine.dispose()


def put(number: int) -> Work:
    def work(connection: Connection) -> int:
        connection.exec_driver_sql("INSERT INTO numbers VALUES (?)", (number,))
        return number

    return work


def put_and_raise(number: int, error: Exception) -> Work:
    def work(connection: Connection) -> None:
        put(number)(connection)
        raise error

    return work


def test_alone_is_one_transaction(machine: Machine) -> None:
    assert machine.writer.run(put(1)) == 1
    assert (machine.numbers(), machine.commits, machine.wakes) == ([1], 1, 1)


def test_a_piece_that_fails_alone_leaves_nothing(machine: Machine) -> None:
    with pytest.raises(InvalidRequest):
        machine.writer.run(put_and_raise(1, InvalidRequest("no")))
    assert (machine.numbers(), machine.commits, machine.wakes) == ([], 0, 0)


def test_those_who_wait_share_a_transaction(machine: Machine) -> None:
    assert machine.run_together([put(n) for n in range(8)]) == list(range(8))
    assert (machine.numbers(), machine.commits, machine.wakes) == (list(range(8)), 1, 8)


def test_a_group_is_bounded(machine: Machine) -> None:
    count = MAX_GROUP + 1
    machine.run_together([put(n) for n in range(count)])
    assert (len(machine.numbers()), machine.commits) == (count, 2)


def test_a_piece_of_a_group_fails_alone(machine: Machine) -> None:
    refusal = InvalidRequest("no")
    outcomes = machine.run_together([put(1), put_and_raise(2, refusal), put(3)])
    assert outcomes == [1, refusal, 3]
    assert (machine.numbers(), machine.wakes) == ([1, 3], 2)


def test_a_failure_of_the_machine_fails_the_whole_group(machine: Machine) -> None:
    full = OutOfSpace("full")
    outcomes = machine.run_together([put(1), put_and_raise(2, full), put(3)])
    assert outcomes == [full] * 3
    assert (machine.numbers(), machine.wakes) == ([], 0)
    assert machine.writer.run(put(4)) == 4


def test_a_failure_of_the_commit_overrules_every_outcome(machine: Machine) -> None:
    lost = Unavailable("lost")

    def fail(_: Connection) -> None:
        raise lost

    def arm(connection: Connection) -> None:
        event.listen(machine.engine, "commit", fail, once=True)

    outcomes = machine.run_together([put(1), put_and_raise(2, InvalidRequest("no")), arm])
    assert outcomes == [lost] * 3
    assert machine.numbers() == []


def test_a_piece_that_is_torn_out_leaves_the_writer_whole(machine: Machine) -> None:
    def interrupt(_: Connection) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        machine.writer.run(interrupt)
    assert machine.writer.run(put(1)) == 1
    assert machine.numbers() == [1]


def test_one_who_is_torn_out_of_the_line_does_not_stop_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with machine.busy(), monkeypatch.context() as patch:
        patch.setattr(writer._Task, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machine.writer.run(put(1))
    assert machine.writer.run(put(2)) == 2
    assert machine.numbers() == [2]


def test_one_who_is_torn_out_when_it_should_lead_passes_the_lead_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = writer._Task.wait

    def interrupted(task: writer._Task[object]) -> None:
        wait(task)
        assert task.leads
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(writer._Task, "wait", interrupted)
        machine.writer.run(put(1))
    assert machine.writer.run(put(2)) == 2
    assert machine.numbers() == [2]


def test_a_closed_writer_takes_no_more(machine: Machine) -> None:
    machine.writer.close()
    with pytest.raises(Unavailable, match="closed"):
        machine.writer.run(put(1))
