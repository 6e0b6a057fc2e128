from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cloud_ml.models.jobs.framework import PreparationLine, Runtime
from support.fake_api import FakeApi

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def test_list_shows_what_is_ready(run: Run) -> None:
    head, python, tensorflow, _ = run("framework", "list").stdout.splitlines()
    assert head.split() == ["FRAMEWORK", "VERSION", "PYTHON", "READY", "SIZE", "WHAT"]
    assert python.split() == ["python", "3.11", "(default)", "3.11.7", "yes", "-"]
    assert tensorflow.split() == ["tensorflow", "2.16", "(default)", "-", "no", "1.0", "GiB"]


def test_list_for_programs(run: Run) -> None:
    assert run("framework", "list", "-o", "name").stdout.split() == [
        "python==3.11",
        "tensorflow==2.16",
        "tensorflow==1.15",
    ]
    assert json.loads(run("framework", "list", "-o", "json").stdout)[0]["packages"] == ["pip==26.1"]
    assert "version: '1.15'" in run("framework", "list", "-o", "yaml").stdout


def test_describe_takes_the_default_or_the_version_that_is_named(run: Run) -> None:
    shown = run("framework", "describe", "tf").stdout
    assert "2.16" in shown
    assert "Other versions: 1.15" in shown
    assert "no: installed when a job first needs it" in shown
    assert "TF_USE_LEGACY_KERAS=1" in run("framework", "describe", "tensorflow==1.15").stdout
    assert "Version:        2.16" in run("framework", "describe", "tensorflow==2.9").stdout
    assert "  pip==26.1" in run("framework", "describe", "python").stdout


def test_what_is_not_offered_is_said(run: Run) -> None:
    wrong = run("framework", "describe", "tensorflow==0.1")
    assert (
        wrong.exit_code,
        "tensorflow 0.1 is not offered; there is 2.16, 1.15" in wrong.stderr,
    ) == (1, True)
    assert "there is no framework 'torch'" in run("framework", "describe", "torch").stderr
    assert (
        "allowed: a framework, or framework==version" in run("framework", "describe", "==3").stderr
    )


def test_name_and_version_are_two_words_as_in_every_other_command(run: Run) -> None:
    both = [
        run("framework", "describe", *words).stdout
        for words in (("tensorflow", "1.15"), ("tensorflow==1.15",))
    ]
    assert both[0] == both[1]
    assert "TF_USE_LEGACY_KERAS=1" in both[0]
    twice = run("framework", "describe", "tensorflow==1.15", "2.16")
    assert (twice.exit_code, "tensorflow==1.15 names a version already" in twice.stderr) == (
        2,
        True,
    )
    missing = run("framework", "describe", "tensorflow", "0.1")
    assert (
        missing.exit_code,
        "tensorflow 0.1 is not offered; there is 2.16, 1.15" in missing.stderr,
    ) == (1, True)


def test_prepare_tells_how_it_goes_and_how_it_ended(run: Run, api: FakeApi) -> None:
    ready = Runtime(
        name="tensorflow",
        version="2.16",
        python="3.11.7",
        packages=["a==1", "b==1"],
        size_bytes=2**30,
    )
    api.preparation = [
        PreparationLine(message="Downloading a (1GiB)"),
        PreparationLine(),
        PreparationLine(message="ready", runtime=ready),
    ]
    done = run("framework", "prepare", "tensorflow", "2")
    assert done.stdout == "tensorflow 2.16 is ready: 2 packages, 1.0 GiB, Python 3.11.7\n"
    assert "Downloading a (1GiB)" in done.stderr


def test_a_preparation_that_fails_or_breaks_off_is_an_error(run: Run, api: FakeApi) -> None:
    api.preparation = [
        PreparationLine(message="x", error="python 3.11 cannot be prepared: no index answers")
    ]
    failed = run("framework", "prepare", "python")
    assert (failed.exit_code, "no index answers" in failed.stderr) == (1, True)
    api.preparation = []
    assert "the connection ended before" in run("framework", "prepare", "python").stderr


def test_remove(run: Run) -> None:
    assert (
        run("framework", "remove", "python==3.11").stdout
        == "python 3.11 is removed from the server's disk\n"
    )
