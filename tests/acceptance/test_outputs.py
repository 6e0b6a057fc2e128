"""The files that a job leaves, from its last line to the model service that is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, eventually

TRAIN = """
import os, sys
os.makedirs("outputs/plots", exist_ok=True)
os.makedirs("__pycache__", exist_ok=True)
open("outputs/model.onnx", "wb").write(bytes([8]) + b"nnx")
open("outputs/plots/loss.png", "w").write("png")
open("__pycache__/train.pyc", "w").write("compiled")
open("data/churn.csv", "a").write("more")
print("wrote", flush=True)
if "wait" in sys.argv:
    import time
    time.sleep(600)
sys.exit("no luck" if "fail" in sys.argv else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as people have it: a script, data that it reads and data that it changes."""
    (tmp_path / "churn" / "data").mkdir(parents=True)
    (tmp_path / "churn" / "train.py").write_text(TRAIN)
    (tmp_path / "churn" / "data" / "churn.csv").write_text("a,b\n")
    (tmp_path / "churn" / "data" / "other.csv").write_text("a,b\n")
    return tmp_path / "churn"


LEFT = ["data/churn.csv", "outputs/model.onnx", "outputs/plots/loss.png"]


def test_from_a_folder_to_the_result_in_hand(
    server: RealServer, folder: Path, tmp_path: Path
) -> None:
    server.cli("jobs", "submit", "churn-out", "train", str(folder), "--watch").good()
    listed = server.cli("jobs", "outputs", "churn-out").good()
    assert [line.split()[0] for line in listed.out.splitlines()] == ["PATH", *LEFT]
    assert "Copy them: cloudml jobs cp -r churn-out: ." in listed.err
    results = tmp_path / "results"
    server.cli("jobs", "cp", "-r", "churn-out:", str(results)).good()
    assert (
        sorted(str(path.relative_to(results)) for path in results.rglob("*") if path.is_file())
        == LEFT
    )
    server.cli("jobs", "cp", "churn-out:outputs/model.onnx", str(tmp_path)).good()
    assert (tmp_path / "model.onnx").read_bytes() == b"\x08nnx"
    described = server.cli("jobs", "describe", "churn-out").good().out
    assert "models deploy NAME v1 churn-out:outputs/model.onnx" in described
    document = server.cli("jobs", "describe", "churn-out", "-o", "json").json()
    assert (document["outputs"]["files"], document["outputs"]["not_kept"]) == (3, 0)


def test_what_a_failed_and_a_cancelled_job_left(
    server: RealServer, folder: Path, client: CloudMlClient
) -> None:
    failed = server.cli(
        "jobs", "submit", "failed-out", "train", str(folder), "--watch", "--", "fail"
    )
    assert failed.code != 0
    job = client.submit_train_job(
        TrainJob("cancelled-out", "train", str(folder), job_args=["wait"])
    )
    eventually(lambda: b"wrote" in b"".join(job.logs()), "it has written its files")
    job.cancel()
    assert job.wait(60).phase == "Stopped"
    for name in ("failed-out", "cancelled-out"):
        assert [file.path for file in client.train_job_outputs(name)] == LEFT


def test_a_model_of_a_job_outlives_the_job(
    server: RealServer, folder: Path, client: CloudMlClient
) -> None:
    server.cli("jobs", "submit", "deployed-out", "train", str(folder), "--watch").good()
    source = "deployed-out:outputs/model.onnx"
    server.cli("models", "deploy", "from-outputs", "v1", source, "--save_mode").good()
    gone = server.cli("jobs", "delete", "deployed-out", "--wait").good()
    assert gone.out == "deployed-out is deleted, with 3 files (15 B) of outputs\n"
    uri = client.describe_model_service("from-outputs", "v1").spec["model_uri"]
    assert [one.uri for one in client.storage.list_objects(f"{uri}/")] == [f"{uri}/1/model.onnx"]
    assert not list(client.storage.list_objects("fds://cloudml/.outputs/deployed-out-"))
    server.cli("models", "delete", "from-outputs", "v1").good()


def test_texts_and_code_among_outputs_are_looked_into_before_they_are_served(
    server: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "texts.py").write_text(
        "open('metrics.json', 'w').write('{\"auc\": 0.9}')\n"
        "open('churn.txt', 'w').write('tree\\nversion=v4\\n')\n"
        "open('fit.py', 'w').write('print(1)')\n"
    )
    server.cli("jobs", "submit", "texts-out", "texts", str(tmp_path / "texts.py"), "--watch").good()
    proposed = server.cli("jobs", "outputs", "texts-out").good().err
    assert "models deploy NAME v1 texts-out:churn.txt" in proposed
    assert proposed.count("models deploy") == 1
    for file, expected in (
        ("metrics.json", "allowed is a model of XGBoost"),
        ("fit.py", "allowed is Python code with"),
    ):
        refused = server.cli("models", "deploy", "texts", "v1", f"texts-out:{file}")
        assert refused.code == 1
        assert expected in refused.err
    server.cli("models", "deploy", "texts", "v1", "texts-out:churn.txt", "--save_mode").good()
    assert "fds://cloudml/.models/" in server.cli("models", "describe", "texts", "v1").good().out
    server.cli("models", "delete", "texts", "v1", "--wait").good()


def test_mistakes_are_told_with_the_way_out(
    server: RealServer, folder: Path, tmp_path: Path
) -> None:
    server.cli(
        "jobs", "submit", "mistaken-out", "train", str(folder), "--watch", "--outputs", "*.png"
    ).good()
    for words, expected in (
        (
            ("jobs", "cp", "mistaken-out:model.onnx", "."),
            "the job mistaken-out has no output model.onnx",
        ),
        (("jobs", "cp", "mistaken-out", "."), "NAME:PATH such as churn:model.pt"),
        (("jobs", "cp", "mistaken-out:", "."), "copy it with -r"),
        (("jobs", "cp", "mistakn-out:x", "."), "there is no job mistakn-out"),
        (("models", "deploy", "m", "v1", "mistaken-out:outputs/plots/loss.png"), "holds no model"),
        (("models", "deploy", "m", "v1", "mistaken-out:nothing"), "has no output nothing"),
        (("jobs", "submit", "x", "train", str(folder), "--outputs", "!x"), "outputs is '!x'"),
        (
            ("jobs", "submit", "x", "train", str(folder), "--outputs", "x", "--no-outputs"),
            "exclude each other",
        ),
    ):
        ran = server.cli(*words)
        assert ran.code != 0
        assert expected in ran.err


OUTSIDE = """
from pathlib import Path
Path("/tmp/w.pt").write_text("long weights")
Path("../up.txt").write_text("three")
Path("~/home.txt").expanduser().write_text("of home")
Path("~/.cache/hub").expanduser().mkdir(parents=True)
Path("~/.cache/hub/model.bin").expanduser().write_text("can be fetched again")
"""


def test_files_outside_the_working_directory_are_named_at_the_end(
    server: RealServer, tmp_path: Path
) -> None:
    """They vanished without a word, and the job had succeeded."""
    if not server.client().server_info().isolation["sandbox"].startswith("bubblewrap"):
        pytest.skip("jobs have no /tmp of their own without bubblewrap")
    (tmp_path / "outside.py").write_text(OUTSIDE)
    ran = server.cli(
        "jobs", "submit", "outside-out", "outside", str(tmp_path / "outside.py"), "--watch"
    ).good()
    sentence = (
        "3 files outside the working directory were not kept: /tmp/w.pt, ~/home.txt, ~/up.txt. "
        "Write them below the working directory."
    )
    assert ran.err.count(sentence) == 1
    assert server.cli("jobs", "wait", "outside-out").good().err.count(sentence) == 1
    events = server.cli("jobs", "events", "outside-out", "-o", "json").json()
    assert [event["message"] for event in events if event["reason"] == "FilesNotKept"] == [sentence]


def test_nothing_was_written_is_said_once(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("print('done')")
    server.cli("jobs", "submit", "quiet-out", "quiet", str(tmp_path / "quiet.py"), "--watch").good()
    assert server.cli("jobs", "outputs", "quiet-out").good().err == "Nothing was written.\n"
    assert server.cli("jobs", "describe", "quiet-out").good().out.count("Nothing was written.") == 1
    assert server.cli("jobs", "outputs", "quiet-out", "-o", "json").json() == []


def test_the_sdk_of_both_faces(
    server: RealServer, folder: Path, client: CloudMlClient, tmp_path: Path
) -> None:
    handle = client.submit_train_job(
        TrainJob("sdk-out", "train", str(folder), outputs=["outputs/"])
    )
    assert handle.wait(60).outputs is not None
    assert [file.model for file in handle.outputs()] == ["outputs/model.onnx", ""]
    places = client.download_train_job_outputs("sdk-out", tmp_path / "one", path="outputs/plots")
    assert places == [tmp_path / "one" / "outputs" / "plots" / "loss.png"]

    async def download() -> list[Path]:
        keys = server.credentials
        async with AsyncCloudMlClient(
            keys["access_key"], keys["secret_key"], server.endpoint
        ) as other:
            return await other.download_train_job_outputs("sdk-out", tmp_path / "two")

    assert {place.read_bytes() for place in asyncio.run(download())} == {b"\x08nnx", b"png"}


FLAG = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--output_path", default="nowhere")
parser.add_argument("--epochs", type=int)
given = parser.parse_args()
print("flag", given.output_path, "variable", os.environ["CLOUDML_OUTPUT_PATH"], "epochs", given.epochs)
"""


def test_the_output_path_reaches_code_that_has_the_flag(
    run: Callable[..., tuple[Job, str]],
) -> None:
    uri = "fds://cloudml/flags"
    job, log = run("with-flag", FLAG, output_path=uri, job_args=["--epochs", "3"])
    assert job.succeeded, log
    assert "cloudml: passes --output_path=" in log
    flag, variable = log.split("flag ")[1].split()[0], log.split("variable ")[1].split()[0]
    assert flag == variable
    assert flag.endswith("storage/cloudml/flags")
    assert (
        "flag mine"
        in run("with-own-flag", FLAG, output_path=uri, job_args=["--output_path", "mine"])[1]
    )
    plain = run("without-flag", "import sys; print('arguments', sys.argv[1:])", output_path=uri)[1]
    assert "arguments []" in plain


def test_a_bucket_with_names_that_no_key_can_have_is_removed(
    server: RealServer, run: Callable[..., tuple[Job, str]]
) -> None:
    server.cli("storage", "mb", "odd-names").good()
    source = """
import os
bucket = os.environ["CLOUDML_STORAGE"] + "/odd-names/"
for name in (b"bad\\xff", b"new\\nline", b"back\\\\slash"):
    open(bucket.encode() + name, "w").close()
"""
    job, log = run("writes-odd-names", source)
    assert job.succeeded, log
    names = [rf"fds://odd-names/{name}" for name in (r"bad\xff", r"back\\slash", r"new\nline")]
    listed = server.cli("storage", "ls", "fds://odd-names").good().out
    assert all(name in listed for name in names), listed
    assert server.cli("storage", "rm", names[0], names[1]).good().out.count("removed") == 2
    left = server.cli("storage", "ls", "-r", "fds://odd-names", "-o", "name").good().out
    assert left.split() == [names[2]]
    assert [
        one.split()[0] for one in server.cli("storage", "ls", names[2]).good().out.splitlines()[1:]
    ] == [names[2]]
    gone = server.cli("storage", "rm", names[0])
    assert (gone.code, "there is no file" in gone.err) == (1, True)
    kept = server.cli("storage", "rb", "odd-names")
    assert (kept.code, "rb --force odd-names" in kept.err) == (1, True)
    server.cli("storage", "rb", "--force", "--yes", "odd-names").good()
    assert "odd-names" not in server.cli("storage", "ls").good().out


HOSTILE = r"""
import os, socket
os.makedirs("inner")
os.symlink("/etc/passwd", "link-to-file")
os.symlink("/etc", "link-to-folder")
os.symlink("../../../..", "inner/up")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
for target in ("/etc/passwd", os.environ["CLOUDML_STORAGE"] + "/cloudml"):
    try:
        os.link(target, "hard-link")
    except OSError as error:
        print("no hard link:", error.strerror)
with open("sparse", "wb") as sparse:
    sparse.truncate(2**40)
for name in (b"bad\xff", b"new\nline", b"back\\slash", b"\x1b[31mred"):
    open(name, "w").close()
open("mine", "w").write("mine")
os.chmod("inner", 0)
here = os.getcwd()
for _ in range(100):
    os.mkdir("d")
    os.chdir("d")
os.chdir(here)
stored = os.environ["CLOUDML_STORAGE"] + "/cloudml/.outputs/hostile-out-" + os.environ["CLOUDML_JOB_ID"]
os.makedirs(stored)
os.symlink("/etc/cron.d", stored + "/planted")
os.mkdir("planted")
open("planted/file", "w").write("not there")
"""


def test_a_hostile_working_directory(
    server: RealServer, client: CloudMlClient, run: Callable[..., tuple[Job, str]]
) -> None:
    """Nothing is read through what a job left, nothing is written through what it planted, and
    all of it is told.
    """
    job, log = run("hostile-out", HOSTILE)
    assert job.succeeded, log
    assert [file.path for file in client.train_job_outputs("hostile-out")] == ["mine"]
    messages = "\n".join(
        event.message
        for event in client.train_job_events("hostile-out")
        if "not saved" in event.message
    )
    for name in (
        r"bad\xff",
        r"new\nline",
        r"back\\slash",
        r"\x1b[31mred",
        "sparse (1024G)",
        "planted/file",
        "d/d/d/",
    ):
        assert name in messages
    assert not Path("/etc/cron.d/file").exists()
    client.delete_train_job("hostile-out")
    stored = server.bucket(".outputs", f"hostile-out-{job.uid}")
    eventually(lambda: not list(client.list_train_jobs(name="hostile-out")), "it is gone")
    assert not list(stored.glob("mine"))
