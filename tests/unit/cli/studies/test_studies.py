"""``cloudml hp submit``: files that are no studies are refused before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from cloud_ml.cli.display.study_tables import sort_trials
from cloud_ml.cli.studies.documents import changes_of, study_of
from cloud_ml.cli.studies.submit import read_words, submit
from cloud_ml.errors import AlreadyExists, Conflict
from cloud_ml.models import codec
from cloud_ml.models.studies.study import Study, Trial, shown_parameters
from support.fake_server import Reply, Seen, json_reply

if TYPE_CHECKING:
    from support.fake_api import FakeApi
    from unit.cli.conftest import Run

_KATIB = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: random}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  parallelTrialCount: 3
"""
_SWEEP = "method: bayes\nmetric: {goal: minimize, name: loss}\n"
_WHOLE_SWEEP = _SWEEP + "program: train.py\nparameters: {lr: {values: [1, 2]}}\n"
_KATIB_OBJECTIVE = (
    "name: rates\njob: {module_name: task, trainer_uri: ./code}\nspace: {lr: [1, 2]}\n"
    "objective: {metric: loss, goal: minimize}\n"
)
_STUDY = "name: Rates_1\njob: {module_name: task, trainer_uri: ./code}\nspace: {lr: [1, 2]}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_KATIB, "spec.parameters is None; allowed is a list of parameters"),
        (_SWEEP, "method is not a known field; did you mean algorithm?"),
        (_WHOLE_SWEEP, "Write program as job.trainer_uri"),
        (_KATIB_OBJECTIVE, "allowed is METRIC:min or METRIC:max, such as loss:min"),
        (_STUDY, "name is 'Rates_1'; allowed is lower-case letters"),
    ],
)
def test_a_file_of_another_tuner_is_refused_in_words(
    offline: Run, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(text)
    result = offline("hp", "submit", "-f", str(file))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "job_name" not in result.stderr


def test_a_parameter_that_no_file_of_the_code_mentions_is_named(
    offline: Run, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text('parser.add_argument("--learning-rate")\nprint("loss: 1")\n')
    words = ("hp", "submit", "rates", "-m", "train", "-u", str(code), "-s", "learning_rate=1,2")
    assert "mentions" not in offline(*words).stderr
    output = offline(*words, "-s", "learning_rat=1,2", "-s", "rate=1,2").stderr
    assert f"no file of {code} mentions learning_rat, rate." in output


def test_options_of_the_job_go_to_the_job(
    run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[dict[str, Any]] = []

    def on_studies(seen: Seen) -> Reply:
        sent.append(seen.document)
        raise AlreadyExists("there is a study rates")

    monkeypatch.setattr(api, "on_studies", on_studies, raising=False)
    (tmp_path / "study.yaml").write_text(
        "name: rates\njob: {module_name: task, trainer_uri: 'fds://cloudml/a', output_path: "
        "'fds://cloudml/x', environment: {A: '1', B: '2'}}\nspace: {lr: [1, 2]}\n"
    )
    result = run(
        "hp", "submit", "-f", str(tmp_path / "study.yaml"), "--output-path", "fds://cloudml/out",
        "-e", "B=3", "--env", "C=4", "--label", "team=blue",
    )  # fmt: skip
    assert "there is a study rates" in result.stderr
    (document,) = sent
    assert document["job"] == {
        "module_name": "task",
        "trainer_uri": "fds://cloudml/a",
        "output_path": "fds://cloudml/out",
        "environment": {"A": "1", "B": "3", "C": "4"},
        "labels": {"team": "blue"},
    }


def test_a_field_of_the_job_at_the_top_of_a_study_file_is_named_below_job(
    offline: Run, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(_STUDY + "output_path: fds://cloudml/out\n")
    output = offline("hp", "submit", "-f", str(file)).stderr
    assert "output_path is not a known field; did you mean job.output_path?" in output


def test_a_study_of_options_needs_no_file() -> None:
    study = study_of(
        None,
        "rates",
        {
            "module_name": "trainer.task",
            "trainer_uri": "./rates",
            "framework": None,
            "space": (
                "lr=1e-4:1:log",
                "layers=1:4:int",
                "optimizer=adam,sgd",
                "ratio=12:30,1:2",
                "blanks= adam, sgd ,' x'",
                "wide=1 : 2 : log",
                'drop={"min": 0, "max": 1}',
            ),
            "max_trials": 5,
        },
    )
    assert study.job == {"module_name": "trainer.task", "trainer_uri": "./rates"}
    assert study.space == {
        "lr": {"min": 0.0001, "max": 1, "scale": "log"},
        "layers": {"min": 1, "max": 4, "type": "int"},
        "optimizer": ["adam", "sgd"],
        "ratio": ["12:30", "1:2"],
        "blanks": ["adam", "sgd", "' x'"],
        "wide": {"min": 1, "max": 2, "scale": "log"},
        "drop": {"min": 0, "max": 1},
    }
    assert (study.max_trials, study.objective) == (5, "loss:min")


def test_options_take_the_place_of_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(_STUDY + "seed: 3\n")
    study = study_of(str(file), "rates", {"space": ("depth=1,2",), "cpu_limit": "2", "seed": 4})
    assert study.job == {"module_name": "task", "trainer_uri": "./code", "cpu_limit": "2"}
    assert (study.name, study.seed) == ("rates", 4)
    assert study.space == {"lr": [1, 2], "depth": [1, 2]}


def test_the_module_is_that_of_local_code(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("print('loss=1')\n")
    options = {
        "trainer_uri": str(tmp_path / "fit.py"),
        "space": ("lr=1,2",),
        "metric_patterns": (r"loss=(?P<loss>\S+)",),
    }
    study = study_of(None, "rates", options)
    assert study.job["module_name"] == "fit"
    assert study.job["metric_patterns"] == [r"loss=(?P<loss>\S+)"]
    named = study_of(
        None, "rates", {**options, "trainer_uri": str(tmp_path), "module_name": "fit.py"}
    )
    assert named.job["module_name"] == "fit"


def test_a_range_between_whole_numbers_is_said_to_be_one_of_real_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"trainer_uri": "fds://cloudml/a", "space": ("depth=2:8", "rate=0:1", "n=2:8:int")}
    assert study_of(None, "rates", options).space["depth"] == {"min": 2, "max": 8}
    note = "Note: 2:8 are real numbers; write 2:8:int for whole ones\n"
    assert capsys.readouterr().err == note


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the study has no name"),
        (("rates",), "cloudml hp submit NAME train.py"),
        (("a", "b", "c", "d"), "arguments of the trials stand behind --"),
        (("python", "train.py", "-s", "lr=1,2"), "leave out python"),
        (("a", "train.py", "-a", "--epochs 3", "--", "--epochs", "5"), "give them once"),
        (("rates", "-m", "task", "-u", ".", "-s", "lr"), "NAME=VALUE,VALUE or NAME=MIN:MAX"),
        (("rates", "-m", "task", "-u", ".", "-s", "lr=1:2:cubic"), "'cubic'"),
        (
            ("rates", "-m", "task", "-u", ".", "-s", "lr={min: 0.1, max: 1}"),
            """write NAME=VALUE,VALUE or NAME=MIN:MAX[:int][:log|:reverse-log], or -s 'lr={"min\"""",
        ),
        (("rates", "-m", "task", "-u", ".", "-s", "lr=[adam, sgd]"), "'[adam, sgd]' is not JSON"),
        (("rates", "-m", "task", "-u", ".", "-s", "lr=0.001..1"), "write lr=0.001:1"),
        (("rates", "-m", "task", "-u", ".", "-s", "lr=-1e-3...1.5"), "write lr=-1e-3:1.5"),
        (
            ("rates", "-m", "task", "-u", ".", "-s", "lr=0.1:0.2:0.05"),
            """write a step as -s 'lr={"min": 0.1, "max": 0.2, "step": 0.05}', or in a file""",
        ),
        (
            ("rates", "-m", "task", "-u", ".", "-s", "lr=tune.uniform(0, 1)"),
            "a distribution; write",
        ),
    ],
)
def test_options_that_say_too_little(offline: Run, words: tuple[str, ...], message: str) -> None:
    result = offline("hp", "submit", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_in_the_place_of_the_module_is_answered_with_the_command(
    offline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "solo").mkdir()
    monkeypatch.chdir(tmp_path)
    result = offline("hp", "submit", "rates", "solo", "-s", "lr=1,2")
    assert result.exit_code == 2
    assert "or for the code in solo: cloudml hp submit rates ./solo" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rates", "20"), "cloudml hp extend rates --trials 20"),
        (("rates",), "cloudml hp extend rates --trials N"),
        (("rates", "--max-trials", "5"), "use: --trials N, how many more"),
        (("rates", "--max_trials", "5"), "use: --trials N, how many more"),
        ((), "NAME"),
    ],
)
def test_how_many_more_trials_are_run_is_asked_with_the_command(
    offline: Run, words: tuple[str, ...], message: str
) -> None:
    result = offline("hp", "extend", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_parameters_are_shown_as_the_job_gets_them_and_briefly() -> None:
    shown = shown_parameters({"lr": 0.201928703605735, "layers": 2, "cache": True, "opt": "adam"})
    assert shown == "lr=0.2019 layers=2 cache=true opt=adam"


@pytest.mark.parametrize("texts", [["lr=1,2", "lr=1,3"], ["lr=null", "lr=1,3"], ["lr=null"] * 2])
def test_a_parameter_is_given_once(texts: list[str]) -> None:
    with pytest.raises(click.UsageError, match="'lr' twice"):
        changes_of(texts)


def test_changes_of_a_space_are_read_as_a_space_and_null_takes_one_away() -> None:
    changes = ("lr=0.1:1:log", "layers=null", 'x={"min": 0, "max": 1}', "o=null,none")
    assert changes_of(changes) == {
        "lr": {"min": 0.1, "max": 1, "scale": "log"},
        "layers": None,
        "x": {"min": 0, "max": 1},
        "o": [None, "none"],
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rates", "-n", "other"), "NAME is 'rates', and -n is 'other'; give one of them"),
        (("rates", "train", "-m", "task"), "MODULE is 'train', and -m is 'task'"),
        (("rates", "train", ".", "-u", "code"), "TRAINER is '.', and -u is 'code'"),
    ],
)
def test_a_name_that_is_given_twice_is_refused(
    offline: Run, words: tuple[str, ...], message: str
) -> None:
    result = offline("hp", "submit", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ([], [None, None, None]),
        (["rates"], ["rates", None, None]),
        (["train.py"], [None, None, "train.py"]),
        (["rates", "train.py"], ["rates", None, "train.py"]),
        (["rates", "./code"], ["rates", None, "./code"]),
        (["rates", "trainer.task"], ["rates", "trainer.task", None]),
        (["rates", "trainer.task", "code"], ["rates", "trainer.task", "code"]),
    ],
)
def test_words_are_read_as_those_of_a_job(words: list[str], read: list[str | None]) -> None:
    with click.Context(submit):
        assert read_words(words, {"trainer_uri": None}, from_file=False) == read


def test_ends_of_a_study_are_options_too() -> None:
    known = {option.name for option in submit.params}
    ends = {"target": 0.01, "max_time": "2h", "max_failed": 0}
    assert known.issuperset(ends)
    options = {
        "module_name": "task",
        "trainer_uri": "fds://cloudml/a",
        "space": ("lr=1,2",),
        **ends,
    }
    study = study_of(None, "quick", options)
    assert (study.target, study.max_time, study.max_failed) == (0.01, "2h", 0)


def test_trials_that_cannot_be_the_best_come_last_by_value() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    values = [("Completed", 0.5), ("Failed", 0.001), ("Stopped", 0.1), ("Running", None),
              ("Completed", 0.25), ("Running", 0.3), ("EarlyStopped", 0.2)]  # fmt: skip
    trials = [
        Trial(number=number, job="", parameters={}, state=state, value=value)
        for number, (state, value) in enumerate(values)
    ]
    study = Study(
        uid="u", name="rates", org="default", owner="ann", phase="Running", revision=1,
        created_at=at, updated_at=at, objective="loss:min", objectives=["loss:min"],
        algorithm="tpe", max_trials=9, parallel=1, trials=trials,
    )  # fmt: skip
    assert [one.number for one in sort_trials(study, "value")] == [4, 5, 0, 3, 1, 2, 6]


def test_a_plot_of_a_pareto_front_needs_two_objectives(
    run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    study = Study(
        uid="u", name="rates", org="default", owner="ann", phase="Running", revision=1,
        created_at=at, updated_at=at, objective="loss:min", objectives=["loss:min"],
        algorithm="tpe", max_trials=3, parallel=1,
        trials=[Trial(number=0, job="rates-hp-0", parameters={"x": 1}, state="Completed", value=1)],
    )  # fmt: skip

    def on_studies(_: Seen, _name: str = "", verb: str = "") -> Reply:
        if verb:
            raise Conflict("too few trials")
        return json_reply(codec.encode(study))

    monkeypatch.setattr(api, "on_studies", on_studies, raising=False)
    result = run("hp", "plot", "rates", "--kind", "pareto")
    assert "--kind pareto needs two objectives; rates has one: loss:min" in result.stderr
    assert "nothing to draw" not in result.output
    assert "also takes pareto" not in run("hp", "plot", "rates", "-k", "history").stderr
