"""Words of other tools, typed at the real command line: every row of the tables in
``docs/howto/other-tools.md``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloud_ml.cli.main import cli
from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService
from support.pages import ROOT
from support.server import RealServer

_ROW = re.compile(r"^\| `(cloudml [^`]+)` \| (.+) \|$", re.MULTILINE)
_SAME_AS = re.compile(r"same as `(.+)`")
_PAGE = (ROOT / "docs" / "howto" / "other-tools.md").read_text("utf-8")
ROWS = [(typed, answer.replace("\\|", "|")) for typed, answer in _ROW.findall(_PAGE)]


Typed = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Code as a stranger has it: a script and a file of variables."""
    place = tmp_path_factory.mktemp("other-tools")
    (place / "train.py").write_text("print('one')\nprint('two')\n")
    (place / "vars.env").write_text("# of the tables\nB=2\n")
    return place


@pytest.fixture(scope="module")
def client(server: RealServer, folder: Path) -> Iterator[CloudMlClient]:
    """The client of a user who has a job that has ended and a saved service."""
    client = server.client()
    client.submit_train_job(
        TrainJob("train", "train", str(folder), labels={"team": "vision"})
    ).wait(60)
    client.storage.upload_stream(BytesIO(b"1"), "fds://cloudml/digits/1/x")
    client.create_model_service(
        ModelService("digits", "v1", "fds://cloudml/digits", save_mode=True)
    )
    yield client
    client.delete_train_job("train")
    client.delete_model_service("digits", "v1")


@pytest.fixture
def typed(
    client: CloudMlClient,
    server: RealServer,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Typed:
    """Runs a command line in the folder."""
    del client
    for name, value in {**server.known, "CLOUDML_CONFIG": str(tmp_path / "config.json")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)

    def run(line: str, text: str | None = None) -> Result:
        return CliRunner().invoke(cli, shlex.split(line)[1:], input=text)

    return run


def _outcome(result: Result) -> tuple[int, str, str]:
    return result.exit_code, result.stdout, result.stderr


def test_the_tables_are_long_enough() -> None:
    assert len(ROWS) == len(dict(ROWS)) >= 60
    headings = re.findall(r"^## (.+)$", _PAGE, re.MULTILINE)
    assert {"Slurm", "kubectl", "dstack", "SkyPilot", "Ray", "MLflow"} <= set(headings)


@pytest.mark.parametrize(
    ("line", "answer"), ROWS, ids=[line.removeprefix("cloudml ") for line, _ in ROWS]
)
def test_a_row_is_answered_as_the_page_says(typed: Typed, line: str, answer: str) -> None:
    if (same := _SAME_AS.fullmatch(answer)) is None:
        result = typed(line)
        assert result.stdout == ""
        assert result.stderr.startswith(f"cloudml: {answer}"), result.stderr
        assert result.exit_code in (1, 2)
        return
    expected = _outcome(typed(same[1]))
    while True:  # jobs of other tests may change meanwhile
        found, again = _outcome(typed(line)), _outcome(typed(same[1]))
        if expected == again:
            break
        expected = again
    assert found == expected
    assert "there is no command" not in found[2]


def test_a_name_of_a_job_and_of_a_service_gets_the_full_commands(
    typed: Typed, client: CloudMlClient
) -> None:
    service = client.create_model_service(
        ModelService("train", "v1", "fds://cloudml/digits", save_mode=True)
    )
    try:
        result = typed("cloudml logs train --tail 1")
        assert result.exit_code == 2
        assert (
            "train is the name of a job and of a model service; type one of these:" in result.stderr
        )
        assert (
            "\n  cloudml jobs logs --tail 1 train\n  cloudml models logs --tail 1 train v1\n"
            in result.stderr
        )
        assert typed("cloudml logs train v1").exit_code == 2
    finally:
        service.delete()
        service.wait_until_gone()


def test_a_name_of_nothing_gets_the_full_commands_and_near_names(typed: Typed) -> None:
    result = typed("cloudml status trian")
    assert result.exit_code == 2
    assert "there is no job and no model service trian; did you mean train" in result.stderr
    assert "\n  cloudml jobs describe trian\n  cloudml models describe trian\n" in result.stderr


def test_what_runs_is_stopped_and_removed_by_name(
    typed: Typed, client: CloudMlClient, folder: Path
) -> None:
    script = folder / "forever.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    for name in ("forever-a", "forever-b"):
        handle = client.submit_train_job(TrainJob(name, "forever", str(script)))
        next(iter(handle.logs(follow=True)))
    refused = typed("cloudml rm train forever-a")
    assert refused.exit_code == 2
    assert re.search(
        r"forever-a \(\w+\) has not ended; add --force to stop and delete", refused.stderr
    )
    assert client.describe_train_job("train").deleting is False
    assert typed("cloudml stop forever-b").exit_code == 0
    assert client.get_train_job("forever-b").wait(60).phase == "Stopped"
    removed = typed("cloudml rm --force --wait forever-a forever-b")
    assert (removed.exit_code, removed.stdout) == (
        0,
        "forever-a is deleted\nforever-b is deleted\n",
    )
