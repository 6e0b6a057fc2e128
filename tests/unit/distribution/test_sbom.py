"""The bill of materials says what a server is made of."""

from __future__ import annotations

import importlib.util
import json
import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "tools/sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_holds_us_and_what_we_need_and_no_tools(sbom: ModuleType) -> None:
    bill = sbom.document()
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/cloud-ml@{version('cloud-ml')}"
    names = {one["name"] for one in bill["components"]}
    assert {
        "click",
        "pyyaml",
        "fastapi",
        "starlette",
        "pydantic-core",
        "sqlalchemy",
        "uv",
        "psycopg-binary",
    } <= names
    assert not {"pytest", "mypy", "sphinx", "hatchling", "cloud-ml"} & names
    for one in bill["components"]:
        assert one["version"] == version(one["name"])
        assert one["properties"], f"{one['name']} is not locked"
        assert one["licenses"], f"nobody knows the licence of {one['name']}"


def test_who_needs_whom(sbom: ModuleType) -> None:
    bill = sbom.document()
    needs = {
        one["ref"].partition("@")[0]: {ref.partition("@")[0] for ref in one["dependsOn"]}
        for one in bill["dependencies"]
    }
    assert "pkg:pypi/starlette" in needs["pkg:pypi/fastapi"]
    assert "pkg:pypi/markupsafe" in needs["pkg:pypi/mako"]
    refs = {one["bom-ref"] for one in (bill["metadata"]["component"], *bill["components"])}
    assert refs == {one["ref"] for one in bill["dependencies"]}
    assert all(set(one["dependsOn"]) <= refs for one in bill["dependencies"])


def test_it_is_the_same_twice(sbom: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sbom.document() == sbom.document()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert sbom.document()["metadata"]["timestamp"] == "2026-01-01T00:00:00+00:00"


def test_it_follows_the_schema(sbom: ModuleType) -> None:
    pytest.importorskip(
        "cyclonedx", reason="the schema is not installed; make sbom does it", exc_type=ImportError
    )
    bill = sbom.document()
    assert sbom.faults(json.dumps(bill)) is None
    bill["components"][0]["type"] = "nonsense"
    assert sbom.faults(json.dumps(bill)) is not None


def test_the_licences_of_all_that_a_server_needs_are_on_the_page(sbom: ModuleType) -> None:
    page = (ROOT / "docs/dependencies.md").read_text("utf-8")
    section = page.partition("## Licences")[2].partition("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ")
        for line in section.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    on_page = {name: licence for licence, names in rows[1:] for name in names.split(", ")}
    bill = sbom.document()
    licences = {
        one["name"]: " or ".join(_name(entry) for entry in one["licenses"])
        for one in bill["components"]
    }
    assert {
        name: licence.replace(" OR ", " or ") for name, licence in licences.items()
    }.items() <= on_page.items()
    locked = re.findall(
        r"^([a-z0-9-]+)==.*", (ROOT / "locks/postgres.txt").read_text(), re.MULTILINE
    )
    elsewhere = {"colorama", "greenlet", "importlib-metadata", "tzdata"}
    assert set(on_page) <= set(locked) <= set(on_page) | elsewhere


def _name(entry: dict[str, dict[str, str] | str]) -> str:
    licence = entry.get("license")
    return (
        str(licence["name"]).removesuffix(" License")
        if isinstance(licence, dict)
        else str(entry["expression"])
    )
