"""Copies of jobs, what two jobs differ in, and whether a job gives the same when it runs again."""

from __future__ import annotations

import ensurepip
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, trainer

Run = Callable[..., tuple[Job, str]]

TRAINING = """
import argparse
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--token", default="")
options, _ = parser.parse_known_args()
for step in range(20):
    job.report(step, loss=options.lr / (1 + step))
open("weights.txt", "w").write(str(options.lr))
"""


def test_a_copy_has_other_arguments_and_the_same_code(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    first, _ = run("copied", TRAINING, job_args="--lr 0.3 --token=hunter2", memory_limit="200M")
    changes = ("--set", "lr=0.1", "-M", "300M")
    result = server.cli("jobs", "clone", "copied", *changes, "-o", "json").good().json()
    assert (result["name"], result["spec"]["memory_limit"]) == ("copied-2", "300M")
    assert client.get_train_job("copied-2").wait(60).succeeded
    copy = client.describe_train_job("copied-2")
    assert copy.trainer_digest == first.trainer_digest
    assert copy.spec["job_args"] == ["--lr", "0.1", "--token=******"]
    assert copy.spec["memory_limit"] == "300M"
    named = server.cli("jobs", "clone", "copied", "copied-typed", "--set", "tokens=1").good()
    assert named.out.startswith("copied-typed is submitted")
    assert "--tokens is new; the job has --token, which stays as it is" in named.err
    twice = server.cli("jobs", "clone", "copied", "copied-twice", "-n", "other")
    assert (twice.code, "the new name is given twice" in twice.err) == (2, True)
    handle = client.clone_train_job("copied", {"lr": None}, environment={"A": "b"})
    assert (handle.name, handle.job.spec["environment"]) == ("copied-3", {"A": "b"})
    assert handle.wait(60).succeeded
    values = {name: client.get_train_job(name).points("loss")[0].value
              for name in ("copied", "copied-2", "copied-3")}  # fmt: skip
    assert values == {"copied": 0.3, "copied-2": 0.1, "copied-3": 0.5}
    refused = server.cli("jobs", "clone", "copied", "-u", "here")
    assert refused.code != 0
    assert "a copy of a job has the same code" in refused.err


SEEDED = """
import os, random
from cloud_ml import job
parser = __import__("argparse").ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--token")
parser.add_argument("--comment")
options = parser.parse_args()
chance = random.Random(int(os.environ["CLOUDML_SEED"]))
for step in range(3):
    job.report(step, loss=options.lr / (1 + step) + chance.random() / 1000)
"""


def test_the_argument_that_changed_the_metric_is_named_first(
    client: CloudMlClient, server: RealServer, code: Callable[..., str]
) -> None:
    folder = code(SEEDED)
    handles = []
    for number, rate in enumerate((0.1, 0.5, 0.9) * 3):
        arguments = ["--lr", str(rate), "--token=a1", f"--comment=c{number % 2}"]
        handles.append(
            client.submit_train_job(
                TrainJob(f"rated-{number}", "trainer.task", folder, job_args=arguments,
                         labels={"experiment": "rates"})
            )
        )  # fmt: skip
    assert all(handle.wait(120).succeeded for handle in handles)
    few = client.runs.compare("rated-0", "rated-2")
    assert not few.enough
    assert "7 other runs have loss, 8 are needed" in few.said
    other = client.clone_train_job("rated-0", {"lr": 0.9, "token": "b2", "comment": "c1"},
                                   job_name="rated-other", memory_limit="300M")  # fmt: skip
    assert other.wait(60).succeeded
    found = client.runs.compare("rated-0", "rated-other", metric="loss")
    first, *rest = found.differences
    assert (first.kind, first.name, first.values) == ("argument", "lr", ["0.1", "0.9"])
    assert first.effect is not None
    assert 0.2 < first.effect < 0.3
    assert {(one.kind, one.name) for one in rest} == {
        ("argument", "token"), ("argument", "comment"), ("limit", "memory of master"),
        ("seed", "CLOUDML_SEED"),
    }  # fmt: skip
    assert [one.values for one in rest if one.name == "token"] == [["******", "******"]]
    (loss,) = found.metrics
    assert (loss.step, loss.steps, loss.differs_at) == (2, 3, 0)
    assert [run.state for run in found.runs] == ["Succeeded", "Succeeded"]
    result = server.cli("jobs", "compare", "rated-0", "rated-other", "-m", "loss").good()
    assert "a1" not in result.out
    lines = result.out.splitlines()
    assert lines[0].split() == ["CHANGE", "RATED-0", "RATED-OTHER", "LIKELY", "EFFECT"]
    assert lines[1].split()[:4] == ["argument", "lr", "0.1", "0.9"]
    absent = server.cli("jobs", "compare", "rated-0", "rated-99")
    assert "there is no job and no run rated-99" in absent.err
    assert "one of loss" in server.cli("jobs", "compare", "rated-0", "rated-1", "-m", "los").err


UNSEEDED = """
import random
from cloud_ml import job
for step in range(5):
    job.report(step, loss=random.random())
"""


def test_a_deterministic_job_is_identical_when_it_runs_again(
    run: Run, client: CloudMlClient, tmp_path: Path, server: RealServer
) -> None:
    store(client, tmp_path, "fds://cloudml/once/a.csv", "1")
    source = (
        SEEDED
        + "import pathlib\nout = pathlib.Path(options.model_path)\n"
        + ("out.mkdir(parents=True, exist_ok=True)\n(out / 'w.txt').write_text(str(options.lr))\n")
    )
    source = source.replace(
        "options = ",
        "parser.add_argument('--model_path')\nparser.add_argument('--data')\noptions = ",
    )
    arguments = ["--lr=0.2", "--token=s1", "--data=fds://cloudml/once",
                 "--model_path=fds://cloudml/kept/model"]  # fmt: skip
    first, log = run("steady", source, job_args=arguments, labels={"experiment": "steady"})
    assert first.succeeded, log
    found = client.reproduce_train_job("steady")
    assert (found.verdict, found.because, found.again) == ("identical", [], "steady-again")
    assert (found.series, found.files) == (1, 1), found
    again = client.describe_train_job("steady-again")
    assert again.spec["job_args"][1:] == [
        "--token=******", "--data=fds://cloudml/once", "--model_path=fds://cloudml/kept/model.steady-again",
    ]  # fmt: skip
    assert again.spec["environment"]["CLOUDML_SEED"]
    result = server.cli("jobs", "reproduce", "steady").good()
    assert result.out.startswith("identical: 1 series and 1 file")
    refused = server.cli("jobs", "reproduce", "steady", "--tolerance", "nan")
    assert refused.code != 0


def test_a_job_that_fails_in_the_same_way_again_is_told_to_have_failed(
    run: Run, client: CloudMlClient
) -> None:
    failed, _ = run("breaking", TRAINING + "\nraise SystemExit(3)\n")
    assert not failed.succeeded
    found = client.reproduce_train_job("breaking")
    assert (found.verdict, found.series) == ("identical", 1)
    assert found.said == "identical: 1 series and 1 file; both failed (NonZeroExit)"


def test_a_wheel_that_is_gone_is_the_reason(
    serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    shelf = tmp_path / "wheels"
    wheel = shelf / "vanishing-1.0-py3-none-any.whl"
    # Python's own wheels: environments have pip, and this test asks no index.
    shutil.copytree(Path(ensurepip.__file__).parent / "_bundled", shelf)
    _pack_wheel(wheel, "1.0")
    server = serve(PIP_NO_INDEX=1, PIP_FIND_LINKS=shelf, CLOUDML_ENVIRONMENTS_HOME="")
    source = TRAINING.replace("import argparse", "import argparse, vanishing")
    code = trainer(tmp_path / "code", source, requirements_txt="vanishing\n")
    job = server.client().submit_train_job(
        TrainJob("shelved", "trainer.task", str(code), framework="python")
    )
    assert job.wait(60).succeeded, b"".join(job.logs()).decode()
    client = server.client()
    _pack_wheel(shelf / "vanishing-2.0-py3-none-any.whl", "2.0")
    newer = client.clone_train_job("shelved", job_name="newer", requirements=["vanishing==2.0"])
    assert newer.wait(60).succeeded, b"".join(newer.logs()).decode()
    changes = client.runs.compare("shelved", "newer").differences
    package = (changes[0].kind, changes[0].name, changes[0].values)
    assert package == ("package", "vanishing", ["1.0", "2.0"]), changes
    scaled = client.clone_train_job("shelved", job_name="scaled", environment={"SCALE": "3"})
    assert scaled.wait(60).succeeded
    changes = client.runs.compare("shelved", "scaled").differences
    assert (changes[0].kind, changes[0].name) == ("variable", "SCALE"), changes
    server.terminate()
    shutil.rmtree(server.data / "environments")  # another machine, or the cache was too full
    wheel.unlink()
    server.start()
    found = server.client().reproduce_train_job("shelved")
    assert found.verdict == "differs"
    assert found.because[0].startswith("its packages cannot be installed any more: "), found.because
    assert "vanishing==1.0" in found.because[0]
    assert found.because[1:] == [], "nothing is known of code and packages that were not there"
    kinds = {one.kind for one in server.client().runs.compare("shelved", found.again).differences}
    assert "code" not in kinds


def _pack_wheel(path: Path, version: str) -> None:
    info = f"vanishing-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vanishing.py", "RATE = 0.5\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: vanishing\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_one_changed_byte_of_data_is_the_reason(
    run: Run, client: CloudMlClient, tmp_path: Path, server: RealServer
) -> None:
    for name, text in {"a.csv": "1", "b.csv": "2.5"}.items():
        store(client, tmp_path, f"fds://cloudml/bytes/{name}", text)
    assert run("of-bytes", READING, job_args=["--data=fds://cloudml/bytes"])[0].succeeded
    store(client, tmp_path, "fds://cloudml/bytes/b.csv", "2.6")
    ran = server.cli("jobs", "reproduce", "of-bytes")
    assert ran.code == 1
    assert ran.out.startswith(
        "of-bytes differs because fds://cloudml/bytes/b.csv changed: 3 bytes, then 3 bytes"
    )
    near = client.reproduce_train_job("of-bytes", tolerance=0.5)
    assert near.largest_difference == pytest.approx(0.1)
    assert near.where == "loss of master-0 at step 1"
    assert (near.verdict, near.outputs) == ("differs", ["outputs/model.txt"])


MOUNTED = """
import os, pathlib
from cloud_ml import job
name = os.environ["CLOUDML_JOB_NAME"]
for step, file in enumerate(sorted(pathlib.Path("/fds/set").glob("*.csv"))):
    job.report(step, loss=float(file.read_text()))
pathlib.Path("/fds/left-%s.txt" % name).write_text(name)
folder = pathlib.Path(os.environ["CLOUDML_OUTPUT_PATH"])
folder.mkdir(parents=True, exist_ok=True)
folder.joinpath("model.txt").write_text("1")
path = pathlib.Path(job.checkpoint_dir(), "state-1.json")
path.write_text(name)
job.saved(str(path), 1)
"""


def test_objects_of_the_bucket_of_a_job_are_inputs_and_its_own_are_not(
    run: Run, client: CloudMlClient, tmp_path: Path, server: RealServer
) -> None:
    client.storage.create_bucket("mounted")
    for name, text in {"a.csv": "1", "b.csv": "2.5"}.items():
        store(client, tmp_path, f"fds://mounted/set/{name}", text)
    fields = {"fds_bucket": "mounted", "output_path": "fds://mounted/out"}
    first, log = run("of-mount", MOUNTED, **fields)
    assert first.succeeded, log
    same = client.reproduce_train_job("of-mount")
    assert (same.verdict, list(same.because), same.series) == ("identical", [], 1), same
    store(client, tmp_path, "fds://mounted/set/b.csv", "2.6")
    ran = server.cli("jobs", "reproduce", "of-mount")
    assert ran.code == 1
    assert ran.out.startswith(
        "of-mount differs because fds://mounted/set/b.csv changed: 3 bytes, then 3 bytes"
    )
    store(client, tmp_path, "fds://mounted/set/b.csv", "2.5")
    store(client, tmp_path, "fds://mounted/set/c.csv", "3")
    new = client.reproduce_train_job("of-mount")
    assert new.verdict == "differs"
    assert "fds://mounted/set/c.csv is new" in new.because
    found = client.runs.compare("of-mount", new.again)
    (data,) = [one for one in found.differences if one.kind == "data"]
    assert data.name == "fds://mounted"
    assert str(data.values[0]).startswith("2 objects, 4 bytes, ")


def test_code_without_a_seed_differs_from_itself(run: Run, client: CloudMlClient) -> None:
    run("unsteady", UNSEEDED)
    found = client.reproduce_train_job("unsteady")
    assert found.verdict == "differs"
    assert "it differs from itself when it runs twice (loss of master-0 at step" in found.said
    assert client.describe_train_job("unsteady-again-2").succeeded
    assert client.reproduce_train_job("unsteady", tolerance=1).verdict == "within"


def test_a_job_keeps_what_its_folder_says_of_git(
    client: CloudMlClient, server: RealServer, code: Callable[..., str]
) -> None:
    folder = Path(code("print(1)"))

    def git(*arguments: str) -> None:
        named = ("-c", "user.name=mei", "-c", "user.email=m@example.com")
        subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)

    git("init", "-q", "-b", "trunk")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git("remote", "add", "origin", "https://mei:hunter2@git.example.com/a.git")
    server.cli("jobs", "submit", str(folder), "-n", "from-git", "-m", "trainer.task").good()
    kept = client.describe_train_job("from-git").spec["git"]
    assert (kept["branch"], kept["remote"]) == ("trunk", "https://git.example.com/a.git")
    assert len(kept["commit"]) == 40
    assert "diff" not in kept
    (folder / "trainer" / "task.py").write_text("print(2)")
    client.submit_train_job(TrainJob("from-changes", "trainer.task", str(folder)))
    changed = client.describe_train_job("from-changes").spec["git"]
    assert changed["dirty"] is True
    client.storage.download(changed["diff"], folder / "changes")
    assert b"-print(1)" in (folder / "changes").read_bytes()
    assert client.clone_train_job("from-changes").job.spec["git"] == changed
    client.submit_train_job(TrainJob("from-nothing", "trainer.task", str(folder), git=False))
    assert not client.describe_train_job("from-nothing").spec.get("git")
    submission = server.cli(
        "jobs", "submit", str(folder), "-n", "no-git", "-m", "trainer.task", "--no-git"
    )
    assert submission.good()
    assert not client.describe_train_job("no-git").spec.get("git")


def test_settings_of_a_user_and_of_a_server_leave_out_git(
    serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    folder = trainer(tmp_path / "code", "print(1)")
    git = ("git", "-c", "user.name=mei", "-c", "user.email=m@example.com")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *words], cwd=folder, check=True, capture_output=True)
    (folder / "trainer" / "task.py").write_text("print(2)")
    server = serve()
    client = server.client()

    def submit(name: str, **variables: str) -> bool:
        words = ("jobs", "submit", str(folder), "-n", name, "-m", "trainer.task")
        server.cli(*words, **variables).good()
        return bool(server.client().describe_train_job(name).spec.get("git"))

    assert submit("by-default")
    server.cli("config", "set", "git", "off").good()
    assert not submit("by-file")
    assert submit("by-variable", CLOUDML_NO_GIT="0"), "the variable goes before the file"
    server.cli("config", "set", "git", "on").good()
    assert submit("on-again")
    facts = client.describe_train_job("on-again").spec["git"]
    server = serve(CLOUDML_TRAINERS_GIT="false")
    client = server.client()
    assert client.whoami().keeps_git is False
    assert not submit("by-server")
    assert ".diff" not in server.cli("storage", "ls", "-r", "fds://cloudml/").good().out
    uri = client.describe_train_job("by-server").spec["trainer_uri"]
    older = TrainJob("sent", "trainer.task", uri, git=facts)  # as clients send that do not know it
    assert not client.submit_train_job(older).job.spec.get("git")


READING = """
import argparse, pathlib
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--data", type=pathlib.Path)
options, _ = parser.parse_known_args()
files = sorted(options.data.rglob("*.csv")) if options.data.is_dir() else [options.data]
for step, file in enumerate(files):
    job.report(step, loss=float(file.read_text()))
pathlib.Path("model.txt").write_text(" ".join(file.read_text() for file in files))
"""


def store(client: CloudMlClient, folder: Path, uri: str, text: str) -> None:
    file = folder / "content"
    file.write_text(text)
    client.storage.upload(file, uri)


def test_the_object_that_changed_is_named(
    run: Run, client: CloudMlClient, tmp_path: Path, server: RealServer
) -> None:
    for name, text in {"a.csv": "1", "b.csv": "2"}.items():
        store(client, tmp_path, f"fds://cloudml/set/{name}", text)
    data = "--data=fds://cloudml/set"
    assert run("reads-first", READING, job_args=[data])[0].succeeded
    store(client, tmp_path, "fds://cloudml/set/b.csv", "3")
    assert run("reads-second", READING, job_args=[data])[0].succeeded
    found = client.runs.compare("reads-first", "reads-second")
    (data_change,) = [one for one in found.differences if one.kind == "data"]
    assert data_change.name == "fds://cloudml/set"
    assert [str(value).partition(",")[0] for value in data_change.values] == ["2 objects"] * 2
    assert "fds://cloudml/set/b.csv changed: 1 bytes, then 1 bytes" in found.notes[0]
    assert found.notes[0] in server.cli("jobs", "compare", "reads-first", "reads-second").err


def test_the_files_of_the_code_that_differ_are_shown(
    client: CloudMlClient, server: RealServer, code: Callable[..., str]
) -> None:
    folder = Path(code("rate = 1\nAPI_TOKEN = 'a1b2c3'\n", notes="x"))
    jobs = [client.submit_train_job(TrainJob("code-first", "trainer.task", str(folder)))]
    (folder / "trainer" / "task.py").write_text("rate = 2\nAPI_TOKEN = 'd4e5f6'\n")
    (folder / "trainer" / "data.bin").write_bytes(b"\0\1")
    jobs.append(client.submit_train_job(TrainJob("code-second", "trainer.task", str(folder))))
    assert all(job.wait(60).succeeded for job in jobs)
    found = client.runs.compare("code-first", "code-second")
    binary, task = sorted(found.files, key=lambda one: one.path)
    assert (binary.path, binary.sizes, binary.diff) == ("trainer/data.bin", [None, 2], "")
    assert (task.path, task.cut) == ("trainer/task.py", False)
    assert "-rate = 1" in task.diff
    assert "+rate = 2" in task.diff
    assert "a1b2c3" not in task.diff
    output = server.cli("jobs", "compare", "code-first", "code-second").good().out
    assert "+rate = 2" in output
    assert "trainer/data.bin: absent, " in output
