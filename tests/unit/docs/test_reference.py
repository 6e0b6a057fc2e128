"""The reference is complete: whatever the code offers is on its page."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from functools import cache

import cloud_ml_docs
import pytest
from cloud_ml_docs import cli, errors, rest, sdk
from cloud_ml_docs import settings as setting_pages

from cloud_ml import settings
from cloud_ml.domain.metrics.series import SOURCES
from cloud_ml.domain.studies.spec import TrialState
from cloud_ml.domain.studies.stopping import STOPPERS
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.runtime import Runtime
from cloud_ml.errors import CloudMlError
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.study import NewStudy, StudyExtension, Trial
from cloud_ml.tuning import algorithms
from support.pages import PAGES, ROOT

REFERENCE = ROOT / "docs" / "reference"
_MARK = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)


@cache
def page(name: str) -> str:
    """A page of the reference as it is built."""
    return cloud_ml_docs.fill((REFERENCE / f"{name}.md").read_text("utf-8"))


def rows(name: str) -> list[list[str]]:
    """Cells of all lines of all tables, without code marks."""
    lines = [line for line in page(name).splitlines() if line.startswith("| ")]
    return [
        [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def first_cells(name: str) -> list[str]:
    return [row[0] for row in rows(name)]


def test_every_part_is_on_a_page_and_every_mark_names_a_part() -> None:
    used = [mark for one in PAGES for mark in _MARK.findall(one.read_text("utf-8"))]
    assert sorted(used) == sorted(cloud_ml_docs.PARTS)


def test_every_setting_has_its_line() -> None:
    shown = {(row[0], row[3]) for row in rows("settings") if len(row) == 5}
    for theme in dataclasses.fields(settings.Settings):
        for setting in dataclasses.fields(theme.default_factory):
            assert (setting.name, f"CLOUDML_{theme.name}_{setting.name}".upper()) in shown
    assert all(row[4] for row in rows("settings")), "a setting has no meaning"


def test_every_method_of_the_sdk_has_its_line() -> None:
    descriptions = {cell.partition("(")[0]: row[1] for row in rows("sdk") for cell in row[:1]}
    public = {name for kind, _ in sdk.CLASSES for name in dir(kind) if not name.startswith("_")}
    assert set(descriptions) - {"Method", "---"} == public
    assert all(descriptions.values()), "a method says nothing of itself"


def test_a_setting_without_a_description_is_noticed() -> None:
    @dataclasses.dataclass
    class Theme:
        described: int = 1
        """With a text."""
        silent: int = 2

    with pytest.raises(KeyError, match=r"Theme\.silent"):
        setting_pages.descriptions(Theme)


def test_every_error_code_has_its_line() -> None:
    kinds = [*errors.tree(CloudMlError), *errors.LOCAL]
    assert len(kinds) > 15
    assert {kind.code for kind in kinds} <= set(first_cells("errors"))
    assert "already_exists" in page("errors")


def test_every_command_has_its_section() -> None:
    sections = re.findall(r"^## `(.+)`$", page("cli"), re.MULTILINE)
    paths = [context.command_path for context in cli.walk()]
    assert sections == paths
    assert {"cloudml", "cloudml jobs submit", "cloudml storage ls", "cloudml server"} <= set(paths)


def test_every_phase_is_explained() -> None:
    moves, _, rest_of_page = page("lifecycle").partition("## What a phase means")
    for table in (moves, rest_of_page.partition("\n## ")[0]):
        assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Phase)


def test_every_reason_is_explained_and_no_other() -> None:
    table = page("lifecycle").partition("## Reasons")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(shown) == sorted(Reason)
    never = re.split(r"are\s+never\s+followed", table)[0].rpartition("\n\n")[2]
    assert sorted(re.findall(r"`(\w+)`", never)) == sorted(NEVER_RETRIED)


def test_every_field_of_a_job_has_its_line() -> None:
    assert {field.name for field in dataclasses.fields(TrainJob)} <= set(first_cells("jobs"))


def test_every_part_of_a_study_has_its_line() -> None:
    shown = {name for cell in first_cells("studies") for name in re.split("`?, `?|` ", cell)}
    fields = {
        one.name for kind in (NewStudy, StudyExtension, Trial) for one in dataclasses.fields(kind)
    }
    assert fields <= shown
    assert {*algorithms.NAMES, *STOPPERS, *TrialState} <= shown


def test_every_source_of_points_has_its_line() -> None:
    assert set(SOURCES) <= {row[1] for row in rows("metrics") if len(row) == 4}


def test_every_route_has_its_line() -> None:
    shown = first_cells("rest")
    for path, operations in rest.document()["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in shown
    assert "GET /cloud_ml/v1/train/{name}/logs" in shown
    assert "GET /cloud_ml/v1/framework" in shown


def test_every_key_of_a_runtime_is_explained() -> None:
    shown = [row for row in rows("runtimes") if len(row) == 3 and row[0] not in ("Key", "---")]
    assert [row[0] for row in shown] == [field.name for field in dataclasses.fields(Runtime)]
    assert all(meaning and allowed for _, meaning, allowed in shown)


def test_every_shipped_runtime_has_its_section() -> None:
    heads = re.findall(r"^## (.+)$", page("runtimes"), re.MULTILINE)
    expected = {
        f"{one.name} {one.version}" for one in Catalog.load().runtimes if one.name != "python"
    }
    assert set(heads) == expected | {"python one for each interpreter", "The file of a runtime"}


def test_every_dependency_is_accounted_for_and_no_other() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, groups = declared["project"], declared["dependency-groups"]
    extras = project["optional-dependencies"]
    lists = [
        declared["build-system"]["requires"],
        project["dependencies"],
        *extras.values(),
        *groups.values(),
    ]
    required = {
        re.split(r"[<>=\[]", requirement)[0]
        for requirements in lists
        for requirement in requirements
    }
    text = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    text = re.sub(
        r"^## Programs of the machine$.+?^(?=## )", "", text, flags=re.MULTILINE | re.DOTALL
    )
    cells = re.findall(r"^\| ([a-z][\w, -]+) \|", text, re.MULTILINE)
    names_in_table = {name for cell in cells for name in cell.split(", ")}
    assert names_in_table == required | {"starlette", "pydantic"}  # these come with FastAPI


def test_lines_of_the_command_reference_fit_their_column() -> None:
    blocks = re.findall(r"```text\n(.*?)\n```", page("cli"), re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 80] == []
    assert len(blocks) > 50


def test_the_page_on_several_processes_shows_each_example() -> None:
    shown = cloud_ml_docs.fill((ROOT / "docs/howto/several-processes.md").read_text("utf-8"))
    for path in (ROOT / "examples" / "distributed").glob("*.py"):
        title, _, command = path.read_text("utf-8").splitlines()[0].strip('"').partition(": ")
        assert f"<summary>{title}</summary>" in shown, path
        assert f"$ {command}\n" in shown, path
        assert f" {path.name} " in command, "it runs the example"
