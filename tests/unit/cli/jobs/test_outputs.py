"""What is said below a list of outputs."""

from __future__ import annotations

import dataclasses
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.cli.jobs.outputs import remarks
from cloud_ml.models.jobs.job import JobOutputs
from cloud_ml.models.jobs.outputs import OutputFile
from support.fake_api import FakeApi, make_job

if TYPE_CHECKING:
    from unit.cli.conftest import Run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def files(*paths: str) -> list[OutputFile]:
    return [
        OutputFile(path=path, uri=f"fds://b/{path}", size=10, modified=NOW, etag="")
        for path in paths
    ]


def outputs(count: int, size: int) -> JobOutputs:
    return JobOutputs(uri="fds://b", files=count, bytes=size, not_kept=0)


def test_a_list_that_was_cut_tells_of_all_files() -> None:
    job = make_job("a", phase="Succeeded", outputs=outputs(105, 2048))
    assert (
        remarks(job, files("1.txt", "2.txt"))[0]
        == "105 files (2.0 KiB). Copy them: cloudml jobs cp -r a: ."
    )
    job = make_job("a", phase="Succeeded", outputs=outputs(1, 5))
    assert remarks(job, files("1.txt", "2.txt"))[0].startswith("2 files (20 B)"), "some came later"


def test_where_no_file_was_saved_none_is_to_be_copied() -> None:
    lost = dataclasses.replace(outputs(0, 0), not_kept=1)
    (remark,) = remarks(make_job("a", phase="Succeeded", outputs=lost), [])
    assert remark == "1 file could not be saved. See why: cloudml jobs events a"


def test_the_command_that_deploys_a_model_can_be_pasted() -> None:
    job = make_job("a", phase="Succeeded", outputs=outputs(1, 10))
    (file,) = files("my model.onnx")
    command = remarks(job, [dataclasses.replace(file, model=file.path)])[1].removeprefix(
        "Deploy a model: "
    )
    assert shlex.split(command)[-1] == "a:my model.onnx"


def test_a_file_that_may_hold_weights_only_is_suggested_with_what_it_must_be() -> None:
    job = make_job("a", phase="Succeeded", outputs=outputs(1, 10))
    (file,) = files("w.pt")
    assert remarks(job, [dataclasses.replace(file, model=file.path)])[1:] == [
        "Deploy a model: cloudml models deploy NAME v1 a:w.pt",
        "A PyTorch file must hold a whole model: TorchScript or an exported program.",
    ]


def test_outputs_are_copied_to_places_that_there_are(run: Run, api: FakeApi) -> None:
    kept = JobOutputs(uri="fds://cloudml/churn", files=1, bytes=1, not_kept=0)
    api.jobs["churn"] = make_job("churn", phase="Succeeded", outputs=kept)
    api.objects = {"fds://cloudml/churn/model.pt": b"m", "fds://cloudml/d/old": b"o"}
    refused = run("jobs", "cp", "churn:model.pt", "fds://nob/x")
    assert (refused.exit_code, "there is no bucket nob" in refused.stderr) == (1, True)
    refused = run("jobs", "cp", "churn:model.pt", "s3://nob/x")
    assert (refused.exit_code, "s3://nob/x: only local paths" in refused.stderr) == (2, True)
    refused = run("jobs", "cp", "churn:none", "fds://cloudml/d")
    assert (refused.exit_code, "no bucket" in refused.stderr) == (1, False)
    assert run("jobs", "cp", "churn:model.pt", "fds://cloudml/d").exit_code == 0
    assert api.objects["fds://cloudml/d/model.pt"] == b"m"


def test_outputs_are_called_as_they_were_typed(run: Run, api: FakeApi, tmp_path: Path) -> None:
    kept = JobOutputs(uri="fds://cloudml/.outputs/churn-1f3a", files=2, bytes=2, not_kept=0)
    api.jobs["churn"] = make_job("churn", phase="Succeeded", outputs=kept)
    api.objects = {f"{kept.uri}/model.pt": b"m", f"{kept.uri}/logs/a.txt": b"a"}
    (tmp_path / "file").touch()
    lines = (
        ("churn:logs", str(tmp_path)),
        ("churn:*.nope", str(tmp_path)),
        ("churn:model.pt", str(tmp_path)),
        ("churn:model.pt", str(tmp_path / "file" / "x")),
        ("-r", "churn:", str(tmp_path / "file")),
    )
    messages = [run("jobs", "cp", *words).stderr for words in lines]
    assert messages[0].startswith("cloudml: churn:logs is a folder: copy it with -r")
    assert messages[1] == "cloudml: churn:*.nope: nothing matches churn:*.nope\n"
    assert messages[2] == f"churn:model.pt -> {tmp_path}/model.pt  1 B\n"
    assert messages[3].startswith(f"cloudml: churn:model.pt: {tmp_path}/file/x: ")
    assert ".outputs" not in "".join(messages)
