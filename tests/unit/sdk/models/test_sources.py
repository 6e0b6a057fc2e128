"""What is said of a model that is named wrongly: no such output, and words that mean one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import parse_object_uri
from cloud_ml.sdk.jobs.output_paths import OutputSource, no_such_output, refuse_other_uri
from cloud_ml.sdk.models.folders import check_beginning, files_of

LEFT = ["out/1/model.onnx", "notes.txt", "plots/a.csv"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("job1", "If job1 is a job: job1:PATH. See what it has left: cloudml jobs outputs job1"),
        (
            "job1/out/1",
            "If job1 is a job: job1:out/1. See what it has left: cloudml jobs outputs job1",
        ),
        ("Job1:out", "Names of jobs are in lower case: job1:out"),
        ("model.onnx", None),
        ("../job1", None),
        ("C:\\models", None),
    ],
)
def test_what_is_no_path_may_be_an_output(
    text: str, hint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="allowed is fds://bucket/folder, JOB:PATH, or") as one:
        files_of(Path(text))
    assert one.value.hint == hint


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("out/1/model.onnx/", "job1:out/1/model.onnx"),
        ("/out", "job1:out"),
        ("model.onnx", "job1:out/1/model.onnx"),
        ("note.txt", "job1:notes.txt"),
        ("nothing", ""),
        ("..", ""),
    ],
)
def test_an_output_that_there_is_not_names_the_one_that_is_near(path: str, suggestion: str) -> None:
    error = no_such_output(OutputSource("job1", path), LEFT)
    assert error.message == f"the job job1 has no output {path}"
    listed = "List its outputs: cloudml jobs outputs job1"
    assert error.hint == (f"Did you mean {suggestion}? {listed}" if suggestion else listed)


def test_a_uri_without_its_second_slash_is_no_job() -> None:
    with pytest.raises(InvalidRequest) as one:
        refuse_other_uri("fds:/cloudml/x")
    assert one.value.hint == "Did you mean fds://cloudml/x?"


def test_a_uri_without_a_bucket_is_named_whole() -> None:
    with pytest.raises(InvalidRequest, match=r"^model_uri is 'fds://'; allowed is fds://bucket/"):
        parse_object_uri("model_uri", "fds://")


@pytest.mark.parametrize(
    "code",
    [
        b"\xef\xbb\xbfclass Model:\n    pass\n",
        b"try:\n    class Model(Base):\n        pass\nexcept NameError: raise\n",
        b"from package import *\n",
        b"import package as Model\n",
        b"A = Model = make()\n",
        b"x = 1\r\nclass Model:\r\n",
    ],
)
def test_code_that_may_have_a_model_is_sent(code: bytes) -> None:
    check_beginning(Path("model.py"), "model.py", code)


@pytest.mark.parametrize(
    "code",
    [b"print(1)\n", b"# Model\n", b"m = keras.Model(x)\n", b"class MyModel:\n    pass\n", b""],
)
def test_code_without_a_model_is_refused(code: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Python code with a class Model"):
        check_beginning(Path("model.py"), "model.py", code)
