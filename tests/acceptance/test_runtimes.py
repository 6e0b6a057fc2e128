"""Frameworks as a user and an operator meet them, and trainers that cannot run."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.environments import EXAMPLES
from support.server import RealServer, eventually, trainer

Run = Callable[..., tuple[Job, str]]
SECRET = "s3cr3t"


# ---- what is offered


def test_a_runtime_is_prepared_by_two_at_once_and_described(server: RealServer) -> None:
    both = [server.spawn("framework", "prepare", "python") for _ in range(2)]
    assert [
        process.communicate(timeout=60)[0].split(":")[0].endswith("is ready") for process in both
    ] == [True, True]
    shown = json.loads(server.cli("framework", "describe", "python", "-o", "json").good().out)
    assert (shown["ready"], shown["default"]) == (True, True)
    assert any(package.startswith("pip==") for package in shown["packages"])


def test_what_a_living_job_uses_is_not_removed(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    source = """
import os, pathlib, time
while not pathlib.Path(os.environ["CLOUDML_STORAGE"], "cloudml", "go-on").exists():
    time.sleep(0.02)
import pip
"""
    handle = client.submit_train_job(
        TrainJob("living", "trainer.task", code(source), framework="python")
    )
    eventually(lambda: handle.refresh().phase == "Running", "the job runs")
    refused = server.cli("framework", "remove", "python")
    server.bucket("go-on").touch()
    assert (refused.code, "used by a job that is not over" in refused.err) == (1, True)
    assert handle.wait(60).succeeded


def test_an_unknown_one_is_told_near_names(server: RealServer, code: Callable[..., str]) -> None:
    words = ("jobs", "submit", "-n", "near", "-m", "trainer.task", "-u", code("pass"))
    wrong = server.cli(*words, "-F", "pytroch")
    assert (wrong.code != 0, "did you mean pytorch" in wrong.err) == (True, True)
    wrong = server.cli(*words, "-F", "pytorch", "-V", "1.4")
    assert "pytorch 1.4 is not offered; there is 2.13" in wrong.err
    assert "did you mean xgboost" in server.cli("framework", "prepare", "xgbost").err


def test_python_of_another_version(server: RealServer, client: CloudMlClient, run: Run) -> None:
    offered = [one for one in client.runtimes("python") if one.python and not one.default]
    if not offered:
        pytest.skip("this machine has one version of Python")
    job, log = run(
        "other-python",
        "import sys; print(sys.version)",
        framework="python",
        framework_version=offered[0].version,
    )
    assert (job.phase, log.splitlines()[-1].startswith(offered[0].python)) == ("Succeeded", True), (
        log
    )


def test_libraries_start_as_many_threads_as_there_are_cores(run: Run) -> None:
    source = "import os; print('threads', os.environ.get('OMP_NUM_THREADS'))"
    assert "threads 1" in run("half-a-core", source, cpu_limit="0.5")[1]
    assert "threads None" in run("all-cores", source)[1]
    assert (
        "threads 7"
        in run("insists", source, cpu_limit="0.5", environment={"OMP_NUM_THREADS": "7"})[1]
    )


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_scikit_learn_is_found_in_the_code_and_trains(
    server: RealServer, client: CloudMlClient
) -> None:
    words = (
        "jobs",
        "submit",
        "-W",
        "digits-svm",
        "trainer.task",
        str(EXAMPLES / "frameworks" / "scikit-learn"),
    )
    ran = server.cli(*words, timeout_s=600).good()
    assert float(ran.out.rpartition("accuracy: ")[2].split()[0]) > 0.95


# ---- what cannot run


@pytest.mark.parametrize(
    ("name", "source", "files", "reason", "expected"),
    [
        (
            "no-module",
            "import polars_of_nobody",
            {},
            "NonZeroExit",
            ["No module named 'polars_of_nobody'", "requirements"],
        ),
        (
            "bad-grammar",
            "def main(:\n",
            {},
            "NonZeroExit",
            ["SyntaxError", "trainer/task.py, line 1"],
        ),
        (
            "python-two",
            "print 'hello'\n",
            {},
            "NonZeroExit",
            ["SyntaxError", "trainer/task.py, line 1"],
        ),
        (
            "conflict",
            "pass",
            {"requirements_txt": "numpy==1.26\nnumpy>2\n"},
            "EnvironmentFailed",
            ["numpy==1.26 and numpy>2", "unsatisfiable"],
        ),
        (
            "bad-setup",
            "pass",
            {"setup_py": "import nothing_of_anybody\n"},
            "EnvironmentFailed",
            ["build failed", "No module named 'nothing_of_anybody'"],
        ),
    ],
)
def test_code_that_cannot_run_says_why(
    server: RealServer,
    run: Run,
    name: str,
    source: str,
    files: dict[str, str],
    reason: str,
    expected: list[str],
) -> None:
    handle_code = trainer(server.folder / f"code-{name}", source, **files)
    job = (
        server.client().submit_train_job(TrainJob(name, "trainer.task", str(handle_code))).wait(60)
    )
    assert (job.phase, job.reason) == ("Failed", reason)
    described = server.cli("jobs", "describe", name).good().out
    for words in expected:
        assert words in job.message
        assert words in described
    assert expected[0] in server.cli("jobs", "logs", name).good().out


def test_a_module_that_the_trainer_lacks(client: CloudMlClient, code: Callable[..., str]) -> None:
    job = client.submit_train_job(TrainJob("lacks", "trainer.tsk", code("pass"))).wait(60)
    assert (job.reason, job.message) == (
        "TrainerInvalid",
        "the trainer has no module trainer.tsk, which module_name (-m) asks for; it has trainer.task",
    )


def test_names_in_any_script(client: CloudMlClient, tmp_path: Path) -> None:
    folder = trainer(tmp_path / "größe 训练", "import trainer.größe")
    (folder / "trainer" / "größe.py").write_text("print('ünïcödé 训练')", "utf-8")
    handle = client.submit_train_job(TrainJob("scripts", "trainer.task", str(folder)))
    assert handle.wait(60).succeeded
    assert "ünïcödé 训练" in b"".join(handle.logs()).decode()


# ---- an index behind a password


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address, with credentials, of an index that has one package and shows it to nobody
    else.
    """
    wheel = tmp_path / "private_of_ours-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("private_of_ours.py", "ANSWER = 42\n")
        archive.writestr(
            "private_of_ours-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: private-of-ours\nVersion: 1.0\n",
        )
        archive.writestr(
            "private_of_ours-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("private_of_ours-1.0.dist-info/RECORD", "")
    right = "Basic " + base64.b64encode(f"operator:{SECRET}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != right:
                self._answer(401, b"")
            elif self.path == "/simple/private-of-ours/":
                self._answer(200, f'<a href="/files/{wheel.name}">{wheel.name}</a>'.encode())
            elif self.path == f"/files/{wheel.name}":
                self._answer(200, wheel.read_bytes())
            else:
                self._answer(404, b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as answering:
        threading.Thread(target=answering.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://operator:{SECRET}@127.0.0.1:{answering.server_address[1]}/simple"
        answering.shutdown()


@pytest.mark.slow
def test_a_private_dependency_is_found_and_no_secret_is_told(
    serve: Callable[..., RealServer], index: str, tmp_path: Path
) -> None:
    server = serve(PIP_EXTRA_INDEX_URL=index)
    source = "import os, private_of_ours; print(private_of_ours.ANSWER, dict(os.environ))"
    for name, requirement, phase in (
        ("has", "private-of-ours", "Succeeded"),
        ("lacks", "private-of-us==9", "Failed"),
    ):
        folder = trainer(tmp_path / name, source, requirements_txt=f"{requirement}\n")
        job = (
            server.client().submit_train_job(TrainJob(name, "trainer.task", str(folder))).wait(100)
        )
        output = "".join(
            server.cli("jobs", verb, name).good().out for verb in ("logs", "describe", "events")
        )
        assert (job.phase, SECRET in output + job.message) == (phase, False), output
    assert "private-of-us" in job.message
    assert SECRET not in server.log()
