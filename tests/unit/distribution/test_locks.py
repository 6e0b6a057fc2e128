"""What is installed is what was locked, and what was locked is what ``pyproject.toml`` asks for."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MACHINES = [
    {
        "python_full_version": f"{minor}.6",
        "python_version": minor,
        "sys_platform": system,
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
    }
    for minor in ("3.11", "3.12", "3.13", "3.14")
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]
_ENTRY = re.compile(
    r"([a-z0-9-]+)(?:\[[a-z,-]+\])?==(\S+)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
)


def declared_requirements(
    extras: tuple[str, ...] | None, groups: tuple[str, ...]
) -> list[Requirement]:
    own = [] if extras is None else PROJECT["project"]["dependencies"]
    optional = [
        one for extra in extras or () for one in PROJECT["project"]["optional-dependencies"][extra]
    ]
    return [
        Requirement(one)
        for one in [
            *own,
            *optional,
            *(one for group in groups for one in PROJECT["dependency-groups"][group]),
        ]
    ]


def locked(name: str) -> list[tuple[str, str, Marker | None]]:
    text = (ROOT / "locks" / f"{name}.txt").read_text("utf-8")
    return [
        (name, version, Marker(marker) if marker else None)
        for name, version, marker, _ in _ENTRY.findall(text)
    ]


def on(name: str, machine: dict[str, str]) -> dict[str, str]:
    found = [
        (one, version)
        for one, version, marker in locked(name)
        if marker is None or marker.evaluate(machine)
    ]
    assert len(dict(found)) == len(found), "a package has two versions on one machine"
    return dict(found)


SETS = {
    "all": (
        (
            "server",
            "postgres",
            "tuning",
            "serve",
            "serve-onnx",
            "fsspec",
            "tensorboard",
            "optuna",
            "optuna-samplers",
            "plot",
        ),
        tuple(PROJECT["dependency-groups"]),
    ),
    "develop": (
        (
            "server",
            "postgres",
            "tuning",
            "serve",
            "serve-onnx",
            "fsspec",
            "optuna",
            "optuna-samplers",
            "plot",
        ),
        ("build", "check", "docs", "test"),
    ),
    "postgres": (("server", "postgres"), ()),
    "server": (("server",), ()),
    "tuning": (("server", "tuning"), ()),
    "serve": (("serve",), ()),
    "serve-onnx": (("serve", "serve-onnx"), ()),
    "base": ((), ()),
    "build": (None, ("build",)),
    "uv": (None, ("uv",)),
}


def test_every_extra_and_group_is_locked() -> None:
    assert sorted(SETS) == sorted(file.stem for file in (ROOT / "locks").iterdir())
    assert {extra for extras, _ in SETS.values() for extra in extras or ()} == set(
        PROJECT["project"]["optional-dependencies"]
    )


@pytest.mark.parametrize("name", SETS)
def test_a_lock_agrees_with_what_the_project_asks_for(name: str) -> None:
    for machine in MACHINES:
        versions = on(name, machine)
        for one in declared_requirements(*SETS[name]):
            if one.marker is None or one.marker.evaluate(machine):
                version = versions.get(canonicalize_name(one.name))
                assert version is not None, f"{one} is not locked for {machine}; run `make lock`"
                assert one.specifier.contains(version, prereleases=True), (
                    f"{one}: locked is {version}; run `make lock`"
                )


@pytest.mark.parametrize("name", SETS)
def test_every_line_of_a_lock_is_a_package_with_hashes(name: str) -> None:
    text = (ROOT / "locks" / f"{name}.txt").read_text("utf-8")
    head, _, entries = text.partition("\n")
    assert head.startswith("# The set ")
    assert _ENTRY.sub("", entries) == "", "an option, an address or a package without a hash"


@pytest.mark.parametrize("name", [name for name in SETS if name != "all"])
def test_a_lock_lies_within_the_one_of_all(name: str) -> None:
    for machine in MACHINES:
        assert on(name, machine).items() <= on("all", machine).items()


def test_what_is_installed_here_is_what_was_locked() -> None:
    locked_versions = {
        name: version
        for name, version, marker in locked("develop")
        if marker is None or marker.evaluate()
    }
    here = {canonicalize_name(one.metadata["Name"]): one.version for one in distributions()}
    assert {
        name: (version, here.get(name))
        for name, version in locked_versions.items()
        if here.get(name) != version
    } == {}


def test_the_build_backend_is_pinned_to_what_is_locked() -> None:
    (backend,) = PROJECT["build-system"]["requires"]
    assert backend in PROJECT["dependency-groups"]["build"]
    assert (
        Requirement(backend).specifier
        == Requirement(f"hatchling=={dict(on('build', MACHINES[0]))['hatchling']}").specifier
    )
