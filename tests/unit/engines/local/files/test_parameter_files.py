"""The file with a job's parameters, written where the job's code may have been before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.files import parameter_files

PLAN = ProcessPlan("master", 0, ("true",), {"CLOUDML_PARAMETERS": '{"lr": 0.1}'})


def test_a_link_that_the_job_has_left_is_not_followed(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.write_text("kept")
    (home / parameter_files.NAME).symlink_to(other)
    parameter_files.write(home, PLAN, None)
    assert other.read_text() == "kept"
    assert (home / parameter_files.NAME).read_text() == '{"lr": 0.1}'
    assert os.lstat(home / parameter_files.NAME).st_mode & 0o777 == 0o600


def test_a_folder_of_that_name_is_an_error_of_the_attempt(tmp_path: Path) -> None:
    (tmp_path / parameter_files.NAME).mkdir()
    with pytest.raises(OSError, match="directory"):
        parameter_files.write(tmp_path, PLAN, None)


@pytest.mark.parametrize("value", ["", "/own/path", "[1]", "{", "{" * 100_000])
def test_a_variable_that_is_no_object_is_the_users_own(tmp_path: Path, value: str) -> None:
    plan = ProcessPlan("master", 0, ("true",), {"CLOUDML_PARAMETERS": value})
    parameter_files.write(tmp_path, plan, None)
    assert list(tmp_path.iterdir()) == []
    assert parameter_files.variables("/work", plan) == {}
