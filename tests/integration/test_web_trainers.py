"""Jobs whose trainer comes from the web: a real server, a real web server, real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.trainers.packaging import pack_source
from support.git_server import serving_git
from support.server import RealServer, serving, trainer
from support.web import Web, serving_web

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("transfers")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(
        tmp_path_factory.mktemp("server"), CLOUDML_TRAINERS_URL_ALLOW="127.0.0.1"
    ) as server:
        yield server


@pytest.fixture
def web() -> Iterator[Web]:
    with serving_web() as web:
        yield web


def test_a_job_runs_code_from_the_web(server: RealServer, web: Web, tmp_path: Path) -> None:
    with pack_source(trainer(tmp_path / "linear", "print('from the web', flush=True)")) as package:
        url = web.page("/linear-1.0.tar.gz", package.body.path.read_bytes())
        digest = package.body.sha256
    job = TrainJob(
        "web", "trainer.task", f"{url}#sha256={digest}", framework="python", memory_limit="200M"
    )
    handle = server.client().submit_train_job(job)
    ended = handle.wait(60)
    assert ended.succeeded, ended.message
    assert b"from the web" in b"".join(handle.logs())


def test_a_job_runs_code_of_a_repository(server: RealServer, tmp_path: Path) -> None:
    """Submitted as people type it: the name comes from the repository."""
    with serving_git(tmp_path) as repositories:
        files = {"train.py": "print(open('data.txt').read())", "data.txt": "from a repository"}
        repositories.commit(
            "examples", {f"mnist/{name}": text for name, text in files.items()}, tag="v1"
        )
        uri = f"git+{repositories.url('/examples/.git')}@v1#subdirectory=mnist"
        ran = server.cli("jobs", "submit", uri, "-n", "cloned", "-m", "train", "-W").good()
    assert "from a repository\n" in ran.out


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none", "404"),
        ("/inside", "an address that is a metadata service"),
        ("/#sha256=" + "0" * 64, "404"),
    ],
)
def test_what_cannot_be_had_is_the_reason(
    server: RealServer, web: Web, path: str, message: str
) -> None:
    web.redirect("/inside", "http://169.254.169.254/latest/meta-data/")
    handle = server.client().submit_train_job(
        TrainJob(
            f"web-{len(path)}",
            "trainer.task",
            web.url(path),
            framework="python",
            memory_limit="200M",
        )
    )
    ended = handle.wait(60)
    assert (ended.phase, ended.reason) == ("Failed", "TrainerNotFound")
    assert message in (ended.message or "")
    assert any(
        event.reason == "TrainerNotFound" for event in server.client().train_job_events(handle.name)
    )
