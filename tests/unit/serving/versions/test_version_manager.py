"""Versions come and go in a world whose clock and threads are moved by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from cloud_ml.serving.errors import LoadFailed, ModelFailed, ModelNotFound, NotReady, ServingError
from cloud_ml.serving.runtimes.base import Model
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.decide import Phase
from cloud_ml.serving.versions.folders import Folder
from cloud_ml.serving.versions.model_config import Latest, ModelConfig, Specific, VersionPolicy
from cloud_ml.serving.versions.version_manager import ModelOperations, Rules, VersionManager

RULES = Rules(poll_s=10, settle_s=0, load_threads=2, max_retries=2, retry_s=60)

NEWEST = Latest()


class World:
    """Work is done when ``loads`` is called, later comes when ``passes`` is."""

    def __init__(self) -> None:
        self.time = 0.0
        self.count = 0
        self.calls: list[tuple[float, int, Callable[[], None]]] = []
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.count += 1
        self.calls.append((self.time + seconds, self.count, call))

    def load(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.work.append((work, done))

    def look(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.later(0, lambda: done(work()))

    def passes(self, seconds: float = 0.0) -> None:
        end = self.time + seconds
        while due := sorted(
            (each for each in self.calls if each[0] <= end), key=lambda each: each[:2]
        ):
            self.calls.remove(due[0])
            self.time = max(self.time, due[0][0])
            due[0][2]()
        self.time = end

    def loads(self) -> None:
        """Do what waits in threads, and what follows at once."""
        while self.work:
            work, done = self.work.pop(0)
            try:
                made = work()
            except Exception as error:
                made = error
            done(made)
            self.passes()


class Loaded:
    """A version that answers, and is idle when the test says so."""

    def __init__(self, name: str, number: int, model: str) -> None:
        self.name, self.number, self.model, self.idle = name, number, model, True


class Scene:
    """A model ``m`` in a folder, and a keeper that looks after it."""

    def __init__(self, base: Path, rules: Rules = RULES) -> None:
        self.base = base
        self.broken: set[int] = set()
        self.closed: list[str] = []
        self.world = World()
        self.table = ModelTable()
        self.manager = VersionManager(
            self.table, self.world, rules, ModelOperations(self._load, self._open, self._close)
        )

    def _load(self, folder: Folder) -> Model:
        if int(folder.path.name) in self.broken:
            raise ModelFailed(f"{folder.path.name} is damaged")
        return cast("Model", (folder.path / "model.onnx").read_text())

    def _open(self, name: str, number: int, model: Model, _folder: Folder) -> Any:
        return Loaded(name, number, cast("str", model))

    def _close(self, model: Model) -> None:
        self.closed.append(cast("str", model))

    def write(self, number: int, content: str = "") -> None:
        (self.base / str(number)).mkdir(parents=True, exist_ok=True)
        (self.base / str(number) / "model.onnx").write_text(content or f"model {number}")

    def config(self, policy: VersionPolicy = NEWEST, **labels: int) -> dict[str, ModelConfig]:
        return {"m": ModelConfig("m", self.base, policy, labels)}

    def start(self, policy: VersionPolicy = NEWEST, **labels: int) -> Scene:
        self.began: list[bool] = []
        self.manager.start(self.config(policy, **labels), lambda: self.began.append(True))
        self.world.passes()
        self.world.loads()
        return self

    def poll(self) -> None:
        self.world.passes(10)
        self.world.loads()

    @property
    def answers(self) -> dict[int, str]:
        return {
            number: cast("Any", each).model
            for number, each in self.table.models["m"].versions.items()
        }

    @property
    def phases(self) -> dict[int, Phase]:
        return {each.number: each.phase for each in self.manager.statuses("m")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.write(1)
    return made


def test_a_new_version_answers_before_the_old_one_leaves(scene: Scene) -> None:
    scene.start()
    assert (scene.answers, scene.began, scene.manager.ready) == ({1: "model 1"}, [True], True)
    scene.write(2)
    scene.world.passes(10)
    assert scene.phases == {2: Phase.LOADING, 1: Phase.AVAILABLE}
    assert scene.answers == {1: "model 1"}
    scene.world.loads()
    assert scene.answers == {2: "model 2"}
    assert scene.phases == {2: Phase.AVAILABLE, 1: Phase.END}
    assert scene.closed == ["model 1"]


def test_an_old_version_is_closed_when_its_last_request_is_answered(scene: Scene) -> None:
    scene.start()
    old = cast("Any", scene.table.find("m"))
    old.idle = False
    scene.write(2)
    scene.poll()
    scene.world.passes(5)
    scene.world.loads()
    assert (scene.answers, scene.phases[1], scene.closed) == ({2: "model 2"}, Phase.UNLOADING, [])
    old.idle = True
    scene.world.passes(1)
    scene.world.loads()
    assert (scene.phases[1], scene.closed) == (Phase.END, ["model 1"])


def test_a_broken_version_takes_nothing_down_and_tells_why(scene: Scene) -> None:
    scene.start()
    scene.broken.add(2)
    scene.write(2)
    scene.poll()
    assert scene.answers == {1: "model 1"}
    newest = scene.manager.statuses("m", 2)[0]
    assert (newest.phase, newest.code, newest.message) == (Phase.END, 13, "2 is damaged")


def test_a_broken_version_at_the_start_has_a_stand_in(scene: Scene) -> None:
    scene.write(2)
    scene.broken.add(2)
    scene.start()
    assert scene.answers == {1: "model 1"}
    assert scene.began == [True]
    scene.broken.clear()
    scene.world.passes(60)
    scene.world.loads()
    assert scene.answers == {2: "model 2"}


def test_a_broken_version_is_tried_again_so_often_and_then_when_its_files_change(
    scene: Scene,
) -> None:
    scene.broken.add(1)
    scene.start()
    tries = 1
    for _ in range(10):
        scene.world.passes(60)
        tries += len(scene.world.work)
        scene.world.loads()
    assert tries == 3
    with pytest.raises(NotReady, match="version 1: 1 is damaged"):
        scene.table.find("m")
    scene.broken.clear()
    scene.write(1, "mended")
    scene.poll()
    assert scene.answers == {1: "mended"}


def test_a_removed_version_leaves_unless_it_is_the_last(scene: Scene) -> None:
    scene.write(2)
    scene.start()
    shutil.rmtree(scene.base / "2")
    scene.poll()
    assert scene.answers == {1: "model 1"}
    shutil.rmtree(scene.base / "1")
    scene.poll()
    assert scene.answers == {1: "model 1"}
    shutil.rmtree(scene.base)
    scene.poll()
    assert scene.answers == {1: "model 1"}


def test_several_versions_and_labels(scene: Scene) -> None:
    scene.write(2)
    scene.write(3)
    scene.start(Specific(frozenset({1, 3})), stable=1, canary=3)
    assert set(scene.answers) == {1, 3}
    assert scene.table.find("m", label="canary").number == 3
    results: list[ServingError | None] = []
    scene.manager.reload(scene.config(Specific(frozenset({1, 3})), stable=3), results.append)
    scene.world.passes()
    assert scene.table.find("m", label="stable").number == 3
    with pytest.raises(ModelNotFound, match="no label 'canary'"):
        scene.table.find("m", label="canary")
    assert results == [None]


def test_a_label_for_a_version_that_does_not_answer_is_refused(scene: Scene) -> None:
    scene.start()
    results: list[Any] = []
    scene.manager.reload(scene.config(Latest(), stable=7), results.append)
    scene.world.passes()
    assert "only, not 'stable' to version 7" in results[0].message


def test_a_model_that_is_not_configured_any_more_is_gone_when_it_drained(scene: Scene) -> None:
    scene.start()
    results: list[Any] = []
    scene.manager.reload({}, results.append)
    scene.world.passes()
    with pytest.raises(NotReady):
        scene.table.find("m")
    scene.world.loads()
    with pytest.raises(ModelNotFound):
        scene.table.find("m")
    assert (results, scene.closed, scene.manager.names) == ([None], ["model 1"], [])


def test_a_version_that_is_not_wanted_any_more_when_it_is_loaded_never_answers(
    scene: Scene,
) -> None:
    scene.start()
    scene.write(2)
    scene.world.passes(10)
    scene.manager.reload(scene.config(Specific(frozenset({1}))), lambda _error: None)
    scene.world.passes()
    scene.world.loads()
    assert (scene.answers, scene.closed, scene.phases[2]) == (
        {1: "model 1"},
        ["model 2"],
        Phase.END,
    )


def test_unloaded_by_hand_and_loaded_again_with_new_files(scene: Scene) -> None:
    scene.start()
    results: list[Any] = []
    scene.manager.unload("m", results.append)
    scene.world.loads()
    assert (results, scene.closed) == ([None], ["model 1"])
    with pytest.raises(NotReady, match="it was unloaded"):
        scene.table.find("m")
    assert scene.manager.ready
    scene.manager.load("m", results.append)
    scene.world.passes()
    scene.world.loads()
    assert (results, scene.answers) == ([None, None], {1: "model 1"})


def test_a_loaded_version_is_replaced_in_place_where_that_is_asked_for(scene: Scene) -> None:
    scene.start()
    scene.write(1, "other")
    scene.poll()
    assert scene.answers == {1: "model 1"}
    results: list[Any] = []
    scene.manager.load("m", results.append)
    scene.world.passes()
    assert (scene.answers, results) == ({1: "model 1"}, [])
    scene.world.loads()
    assert (scene.answers, scene.closed, results) == ({1: "other"}, ["model 1"], [None])


def test_a_model_that_moves_is_replaced_by_what_lies_there(scene: Scene, tmp_path: Path) -> None:
    scene.start()
    scene.base = tmp_path / "other"
    scene.write(1, "from elsewhere")
    results: list[Any] = []
    scene.manager.reload(scene.config(), results.append)
    scene.world.passes()
    scene.world.loads()
    assert (scene.answers, scene.closed, results) == ({1: "from elsewhere"}, ["model 1"], [None])


def test_only_so_many_load_at_once(scene: Scene) -> None:
    for number in (2, 3, 4):
        scene.write(number)
    scene.manager.start(scene.config(Latest(4)), lambda: None)
    scene.world.passes()
    assert sorted(scene.phases.values()) == [Phase.START, Phase.START, Phase.LOADING, Phase.LOADING]
    scene.world.loads()
    assert set(scene.answers) == {1, 2, 3, 4}


def test_what_does_not_fit_into_memory_waits_for_room(tmp_path: Path) -> None:
    scene = Scene(
        tmp_path,
        Rules(poll_s=10, settle_s=0, memory_bytes=10, memory_factor=1, retry_s=60, max_retries=0),
    )
    scene.write(1, "12345678")
    scene.start()
    scene.write(2, "12345678")
    scene.poll()
    assert scene.answers == {1: "12345678"}
    assert (
        scene.manager.statuses("m", 2)[0].message
        == "it takes about 8 bytes of memory; 8 of 10 are in use"
    )
    scene.manager.unload("m", lambda _error: None)
    scene.world.loads()
    scene.manager.load("m", lambda _error: None)
    scene.world.passes()
    scene.world.loads()
    assert scene.answers == {2: "12345678"}


def test_ended_versions_are_forgotten_one_day(scene: Scene) -> None:
    scene.start()
    for number in range(2, 40):
        scene.write(number)
        scene.poll()
    assert len(scene.phases) == 21
    assert set(scene.answers) == {39}


class Failing(Scene):
    """Every load raises ``error``."""

    error: Exception = ModelFailed("it is damaged")

    def _load(self, folder: Folder) -> Model:
        raise self.error


def refused(scene: Scene) -> ServingError:
    with pytest.raises(NotReady) as caught:
        scene.table.find("m")
    return caught.value


def test_a_loader_that_refuses_is_asked_so_often_and_then_the_model_has_failed(
    tmp_path: Path,
) -> None:
    scene = Failing(tmp_path, Rules(poll_s=10, settle_s=0, max_retries=2, retry_s=1, outage_s=60))
    scene.write(1)
    scene.start()
    for _ in range(2):
        assert not isinstance(refused(scene), LoadFailed)
        scene.world.passes(1)
        scene.world.loads()
    assert isinstance(refused(scene), LoadFailed)
    assert (
        refused(scene).message == "no version of model 'm' can be loaded: version 1: it is damaged"
    )
    scene.world.passes(1000)
    assert scene.world.work == []
    scene.write(1, "other files")
    scene.poll()
    assert not isinstance(refused(scene), LoadFailed), "other files are tried anew"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "weights.bin"),
        ConnectionResetError(104, "reset"),
        TimeoutError("slow"),
        OSError(5, "disk"),
    ],
)
def test_a_missing_file_or_a_network_error_is_tried_for_longer(
    tmp_path: Path, error: Exception
) -> None:
    scene = Failing(tmp_path, Rules(poll_s=10, settle_s=0, max_retries=1, retry_s=1, outage_s=30))
    wrapped = ModelFailed("it cannot be read")
    wrapped.__cause__ = error
    scene.error = wrapped
    scene.write(1)
    scene.start()
    passes = 0
    while not isinstance(refused(scene), LoadFailed):
        scene.world.passes(1)
        scene.world.loads()
        passes += 1
    assert passes == (1 if error.args[0] == 5 else 30)


def test_a_model_of_which_no_file_is_there_has_failed_after_that_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "nowhere", Rules(poll_s=10, settle_s=0, outage_s=30)).start()
    scene.world.passes(20)
    assert not isinstance(refused(scene), LoadFailed)
    scene.world.passes(20)
    assert isinstance(refused(scene), LoadFailed)
    scene.write(1)
    scene.poll()
    scene.poll()
    assert scene.answers == {1: "model 1"}
