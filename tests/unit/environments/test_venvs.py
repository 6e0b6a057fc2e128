"""Virtual environments that wait for their next job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.environments.interpreter import own
from cloud_ml.environments.packages import kept
from cloud_ml.environments.packages.venvs import Venvs


class Tenant:
    """A folder of shelves, and jobs that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owned: list[Path] = []

    def job(self, name: str, *sites: str) -> tuple[Venvs, Path]:
        """A job with its environment."""
        made = Venvs(self.folder / "venvs", self.owned.append)
        target = self.folder / name
        made.make(target, own(), [Path(site) for site in sites])
        return made, target


@pytest.fixture
def tenant(tmp_path: Path) -> Tenant:
    return Tenant(tmp_path)


def _inode(path: Path) -> int:
    return path.stat().st_ino


def test_the_next_job_that_needs_the_same_gets_what_the_last_one_left(tenant: Tenant) -> None:
    made, first = tenant.job("first", "/layers/a")
    inode = _inode(first)
    made.give_back(first)
    assert not first.exists()
    _, second = tenant.job("second", "/layers/a")
    assert _inode(second) == inode
    assert (second / "bin" / "python").exists()
    assert "/layers/a" in next(second.rglob("*.pth")).read_text()
    assert tenant.owned == [first], "it has its owner already"


def test_two_jobs_at_once_have_one_each(tenant: Tenant) -> None:
    made, first = tenant.job("first")
    made.give_back(first)
    second, third = tenant.job("second")[1], tenant.job("third")[1]
    assert _inode(second) != _inode(third)


def test_another_environment_is_another_shelf(tenant: Tenant) -> None:
    made, first = tenant.job("first", "/layers/a")
    inode = _inode(first)
    made.give_back(first)
    _, second = tenant.job("second", "/layers/b")
    assert _inode(second) != inode
    assert "/layers/b" in next(second.rglob("*.pth")).read_text()


def _install(venv: Path) -> None:
    next(venv.glob("lib/*/site-packages")).joinpath("other.py").write_text("")


def _come_and_go(venv: Path) -> None:
    (venv / "bin" / "tool").write_text("")
    (venv / "bin" / "tool").unlink()


def _rewrite(venv: Path) -> None:
    file = next(venv.rglob("*.pth"))
    facts = file.stat()
    file.write_text("#" * facts.st_size)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as if nothing had been written


def _replace(venv: Path) -> None:
    link = venv / "bin" / "python"
    link.unlink()
    link.symlink_to("/bin/true")


def _open_up(venv: Path) -> None:
    (venv / "bin").chmod(0o777)


@pytest.mark.parametrize("change", [_install, _come_and_go, _rewrite, _replace, _open_up])
def test_what_a_job_has_changed_nobody_else_gets(
    tenant: Tenant, change: Callable[[Path], None]
) -> None:
    made, first = tenant.job("first")
    change(first)
    made.give_back(first)
    assert not first.exists()
    assert not list((tenant.folder / "venvs").glob("*/*"))


def test_a_few_are_kept_of_each_kind_and_of_few_kinds(tenant: Tenant) -> None:
    for jobs in (
        [tenant.job(f"same-{number}", "/layers/same") for number in range(6)],
        [tenant.job(f"other-{number}", f"/layers/{number}") for number in range(40)],
    ):
        for made, target in jobs:
            made.give_back(target)
    shelves = list((tenant.folder / "venvs").iterdir())
    assert len(shelves) == 32
    assert max(len(list(shelf.iterdir())) for shelf in shelves) <= 4


def test_all_can_be_cleared(tenant: Tenant) -> None:
    made, first = tenant.job("first")
    made.give_back(first)
    kept.clear(tenant.folder)
    assert not list((tenant.folder / "venvs").iterdir())
    assert tenant.job("second")[1].is_dir()


def test_a_job_without_an_environment_has_nothing_to_give_back(tenant: Tenant) -> None:
    Venvs(tenant.folder / "venvs", tenant.owned.append).give_back(tenant.folder / "nothing")
    assert not (tenant.folder / "venvs").exists()
