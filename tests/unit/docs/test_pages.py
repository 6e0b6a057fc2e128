"""What a page says can be done: links lead somewhere, commands parse, examples are valid."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

from cloud_ml import settings
from cloud_ml.cli.jobs.options import given_fields
from cloud_ml.cli.jobs.submit import with_words
from cloud_ml.cli.main import cli
from cloud_ml.environments.catalog import Catalog
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from support.pages import PAGES, ROOT, Block, anchors, blocks, commands, links, spans

SOURCES = [
    path.relative_to(ROOT).as_posix()
    for top in ("src", "tests", "benchmarks", "tools", "examples")
    for path in (ROOT / top).rglob("*")
]
SECURITY = ROOT / "docs" / "security.md"
GUARANTEES = ROOT / "docs" / "explanation" / "guarantees.md"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize(
    ("page", "arguments"), commands("cloudml"), ids=lambda value: str(value)[-60:]
)
def test_commands_parse(page: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, context: parsed.append(context))
    if cli.main(arguments, standalone_mode=False) == 0:  # --version is done when it is parsed
        return
    command = parsed[-1]
    is_bare = (
        isinstance(command.command, click.Group) and not command.command.invoke_without_command
    )
    assert not is_bare, f"{name_of(page)}: the command is not complete"
    if command.command_path.endswith("jobs submit") and not command.params["filename"]:
        fields = with_words(given_fields(command.params), command.params["words"])
        job = codec.decode(
            TrainJob, {"job_name": "from-the-code", "module_name": "found.there"} | fields
        )
        assert job.job_name


def test_the_readme_opens_with_its_two_commands_and_a_tour() -> None:
    readme = [block.text for block in blocks("console") if block.page == ROOT / "README.md"]
    assert readme[0] == "$ make demo\n$ make test\n"
    assert sum(page == ROOT / "README.md" for page, _ in commands("cloudml")) >= 5


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page, arguments in commands("make"):
        assert set(arguments) <= targets, f"{name_of(page)}: make {' '.join(arguments)}"


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_files_in_toml_are_valid(block: Block, tmp_path: Path) -> None:
    document = tomllib.loads(block.text)
    file = tmp_path / "example.toml"
    file.write_text(block.text)
    if "job_name" in document:
        assert codec.decode(TrainJob, document).job_name == document["job_name"]
    elif "name" in document:
        assert document["name"] in Catalog.load(tmp_path).listing()
    else:
        assert settings.load(file) != settings.load()


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_is_valid_and_imports_what_there_is(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("cloud_ml"):
            module: Any = importlib.import_module(str(node.module))
            for name in node.names:
                there = hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}")
                assert there, f"{node.module} has no {name.name}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_classes_in_python_are_imported_on_the_page(page: Path) -> None:
    """Blocks of a page go on from each other, so an import of an earlier one is enough."""
    known = set(dir(builtins))
    for block in blocks("python"):
        if block.page != page:
            continue
        nodes = list(ast.walk(ast.parse(block.text)))
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                known |= {(each.asname or each.name).partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ClassDef):
                known.add(node.name)
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        missing = {name for name in names if name[:1].isupper()} - known
        assert not missing, f"{block}: {missing} come from nowhere"
    called = {name for span in spans(page) for name in re.findall(r"\b(New[A-Z]\w+)\(", span)}
    assert all(re.search(rf"import .*\b{name}\b", page.read_text("utf-8")) for name in called)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    for span in spans(page):
        path = re.match(r"(?:\w+/)*\w+\.py(?=$|:)", span)
        if path and path[0] not in ("task.py", "setup.py"):
            assert any(source.endswith(f"/{path[0]}") or source == path[0] for source in SOURCES), (
                span
            )


def test_every_attack_names_a_test_that_exists() -> None:
    named = [span.split("::") for span in spans(ROOT / "docs" / "security.md") if "::" in span]
    assert len(named) > 30
    for path, name in named:
        assert re.search(rf"def {name}\b", (ROOT / path).read_text("utf-8")), (
            f"{path} has no {name}"
        )


def test_every_promise_names_tests_that_exist() -> None:
    text = GUARANTEES.read_text("utf-8")
    promises = re.findall(r"^## (\d+)\. .+?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert promises == [str(number) for number in range(1, 13)]
    named = [span.split("::") for span in spans(GUARANTEES) if "::" in span]
    for path, name in named:
        assert re.search(rf"def {name}\b", (ROOT / path).read_text("utf-8")), (
            f"{path} has no {name}"
        )
    for promise in re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:12]:
        assert "::test_" in promise, promise.partition("\n")[0]


def test_tests_that_the_page_on_security_names_exist() -> None:
    named = [span.split("::") for span in spans(SECURITY) if "::" in span]
    assert len(named) > 40
    for path, name in named:
        assert re.search(rf"def {name}\b", (ROOT / path).read_text("utf-8")), (
            f"{path} has no {name}"
        )
