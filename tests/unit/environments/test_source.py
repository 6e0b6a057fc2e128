from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.environments.builder.source import (
    Project,
    find_root,
    has_src_layout,
    is_project,
    is_sdist,
    read_project,
)


def tree(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize(
    ("files", "module", "root"),
    [
        (["trainer-1.0/setup.py", "trainer-1.0/trainer/task.py"], "trainer.task", "trainer-1.0"),
        (["setup.py", "trainer/task.py"], "trainer.task", "."),
        (["trainer/__init__.py", "trainer/task.py"], "trainer.task", "."),
        (["trainer/task.py"], "trainer.task", "."),
        (["code/trainer/task.py"], "trainer.task", "code"),
        (["code/task.py"], "task", "code"),
        (["code/task.py", "._code", "__MACOSX/x"], "task", "code"),
        (["trainer/requirements.txt", "trainer/task.py"], "task", "trainer"),
        (["task.py"], "task", "."),
        (["task.py"], None, "."),
        (["src/task.py"], "task", "."),
    ],
)
def test_find_root(tmp_path: Path, files: list[str], module: str | None, root: str) -> None:
    assert find_root(tree(tmp_path, *files), module) == tmp_path / root


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("[tool.ruff]\nline-length = 100\n", False),
        ('[project]\nname = "x"\ndependencies = ["six"]\n', False),
        ('[project]\nname = "x"\n[project.scripts]\nx = "x:main"\n', True),
        ('[project]\nname = "x"\ndynamic = ["dependencies"]\n', True),
        ('[project]\nname = "x"\n[build-system]\nrequires = []\n', True),
        ("[project", True),
    ],
)
def test_a_project_is_built_where_its_pyproject_asks_for_it(
    tmp_path: Path, text: str, built: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert is_project(tmp_path) == built


def test_how_to_build(tmp_path: Path) -> None:
    assert read_project(tmp_path) == Project()
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = '
        '"hatchling.build"\nbackend-path = ["."]\n'
    )
    assert read_project(tmp_path) == Project("hatchling.build", ("hatchling",), (".",))


@pytest.mark.parametrize(
    "text", ["[build-system]\nrequires = 5\n", "[build-system\n", "[build-system]\nrequires=[1]\n"]
)
def test_a_wrong_pyproject_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert is_project(tmp_path)
    with pytest.raises(ValueError, match=r"pyproject\.toml"):
        read_project(tmp_path)


def test_modules_in_src(tmp_path: Path) -> None:
    assert has_src_layout(tree(tmp_path / "a", "src/task.py", "README"))
    assert not has_src_layout(tree(tmp_path / "b", "src/more.py", "task.py"))
    assert not has_src_layout(tree(tmp_path / "c", "src/__init__.py"))
    assert has_src_layout(tree(tmp_path / "d", "src/trainer/__init__.py", "setup.py"))


def test_a_source_distribution_is_a_tar_with_one_folder_that_describes_itself(
    tmp_path: Path,
) -> None:
    assert is_sdist(
        tree(tmp_path / "a", "trainer-1.0/PKG-INFO", "trainer-1.0/setup.py"), "trainer-1.0.tar.gz"
    )
    assert not is_sdist(tree(tmp_path / "b", "trainer/setup.py"), "trainer.tar.gz")
    assert not is_sdist(tree(tmp_path / "c", "PKG-INFO", "setup.py"), "trainer.tar.gz")
    assert not is_sdist(tree(tmp_path / "d", "trainer/PKG-INFO", "data.csv"), "trainer.tar.gz")
