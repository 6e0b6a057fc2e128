"""The wheel and the sdist: the same whoever builds them, and nothing in them that does not
belong there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.unpacking import UNPACKING

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("src/cloud_ml", "locks", "tests/unit/distribution", ".gitignore")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md")
ENDINGS = {".bin", ".proto", ".py", ".pyi", ".toml", ".c", ".mako", ".pth", ".typed"}
VIEWER_ENDINGS = {".css", ".gz", ".html", ".js", ".json", ".txt"}
"""Of the viewer of the API's documentation."""


def copy_of_the_tree(target: Path, *, mode: int, stray: str, age_s: float) -> Path:
    """The sources as another person has them: other modes, times, order, and things lying about."""
    for part in (*PARTS, *FILES):
        source = ROOT / part
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / part)
    (target / "src/cloud_ml/__pycache__").mkdir()
    (target / "src/cloud_ml/__pycache__" / f"{stray}.cpython-311.pyc").write_bytes(b"stray")
    (target / "notes.txt").write_text(stray)
    for path in sorted(target.rglob("*"), reverse=age_s > 0):
        path.chmod(mode | (0o111 if path.is_dir() else 0))
        os.utime(path, (1_600_000_000 + age_s, 1_600_000_000 + age_s))
    return target


def build(
    tree: Path, out: Path, kinds: Sequence[str], *, umask: int, **environment: str
) -> dict[str, bytes]:
    surroundings = {
        name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"
    }
    subprocess.run(
        [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-d",
            str(out),
            *(word for one in kinds for word in ("-t", one)),
        ],
        cwd=tree,
        umask=umask,
        env={**surroundings, **environment},
        check=True,
        capture_output=True,
    )
    return {file.name: file.read_bytes() for file in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], dict[str, bytes]]:
    base = tmp_path_factory.mktemp("built")
    one = copy_of_the_tree(base / "one", mode=0o644, stray="one", age_s=0)
    other = copy_of_the_tree(base / "a" / "longer path", mode=0o600, stray="other", age_s=9_999_999)
    both = ("sdist", "wheel")
    return (
        build(one, base / "out-one", both, umask=0o022, TZ="UTC", LC_ALL="C", PYTHONHASHSEED="1"),
        build(
            other,
            base / "out-other",
            both,
            umask=0o077,
            TZ="Asia/Tokyo",
            LC_ALL="C.UTF-8",
            PYTHONHASHSEED="2",
        ),
    )


def test_two_people_build_the_same_bytes(built: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    one, other = built
    assert {name: hashlib.sha256(content).hexdigest() for name, content in one.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in other.items()
    }
    assert {name.rpartition(".")[2] for name in one} == {"gz", "whl"}


def test_a_wheel_made_of_the_sdist_is_the_wheel(
    built: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    (sdist,) = (content for name, content in built[0].items() if name.endswith(".tar.gz"))
    (wheel,) = (content for name, content in built[0].items() if name.endswith(".whl"))
    (tmp_path / "sdist.tar.gz").write_bytes(sdist)
    with tarfile.open(tmp_path / "sdist.tar.gz") as tar:
        tar.extractall(tmp_path, **UNPACKING)
    (tree,) = tmp_path.glob("cloud_ml-*")
    (again,) = build(tree, tmp_path / "out", ["wheel"], umask=0o022).values()
    assert again == wheel


def test_what_is_in_the_wheel(
    built: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    ((name, content),) = (
        (name, content) for name, content in built[0].items() if name.endswith(".whl")
    )
    (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        members = {member.filename: member for member in wheel.infolist()}
        metadata = wheel.read(next(one for one in members if one.endswith("/METADATA"))).decode()
    facts = f"{'-'.join(name.split('-')[:2])}.dist-info"
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    beside = targets["wheel"]["shared-data"]
    assert all(place.startswith("share/cloud-ml/") for place in beside.values())
    ours = {one for one in members if one.startswith("cloud_ml/")}
    assert set(members) - ours == {
        *(
            f"{facts}/{one}"
            for one in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        ),
        *(f"{facts.removesuffix('.dist-info')}.data/data/{place}" for place in beside.values()),
    }
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/cloud_ml").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert ours == sources
    viewer = {one for one in ours if one.startswith("cloud_ml/api/viewer/")}
    assert {Path(one).suffix for one in viewer} <= VIEWER_ENDINGS
    assert {Path(one).suffix for one in ours - viewer} <= ENDINGS
    assert "cloud_ml/py.typed" in ours
    assert not [
        one
        for one in ours
        if "__pycache__" in one or Path(one).name.startswith(("test_", "conftest"))
    ]
    assert {member.external_attr >> 16 & 0o777 for member in members.values()} == {0o644}
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_what_is_in_the_sdist(
    built: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    ((name, content),) = (
        (name, content) for name, content in built[0].items() if name.endswith(".tar.gz")
    )
    (tmp_path / name).write_bytes(content)
    with tarfile.open(tmp_path / name) as tar:
        members = tar.getmembers()
    tops = {one.name.split("/")[1] for one in members}
    assert tops == {*FILES, "locks", "src", ".gitignore", "PKG-INFO"}
    assert not [one.name for one in members if one.name.endswith(".pyc") or "notes" in one.name]
    assert {(one.uid, one.gid, one.uname, one.gname) for one in members} == {(0, 0, "", "")}
