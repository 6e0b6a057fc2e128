"""The structures of project quotas, the numbers of jobs, and whether quotas are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk import project_quotas
from cloud_ml.engines.local.disk.project_ids import ProjectIds, ProjectLimit, unusable
from cloud_ml.engines.local.disk.project_quotas import ProjectQuota

MIB = 2**20
FIRST = 1000
FULL = "DiskQuotaExceeded: 64M exceeded"


def _request(direction: int, number: int, size: int) -> int:
    """``_IOC`` of asm-generic/ioctl.h for the type ``X``."""
    return direction << 30 | size << 16 | ord("X") << 8 | number


def test_structures_and_numbers_are_those_of_the_kernel() -> None:
    """Sizes as a C compiler gives them on 64 bits: fsxattr 28, if_dqblk 72."""
    assert project_quotas.XATTR.size == 28
    assert project_quotas.QUOTA.size == 72
    assert _request(2, 31, 28) == project_quotas.GET_XATTR
    assert _request(1, 32, 28) == project_quotas.SET_XATTR


class Kernel:
    """What a kernel with project quotas knows."""

    def __init__(self) -> None:
        self.quotas: dict[int, ProjectQuota] = {}
        self.projects: dict[Path, int] = {}

    def set_limit(self, _: Path, project: int, size: int, files: int = 0) -> None:
        self.quotas[project] = ProjectQuota(size, 0, files, 0)

    def assign(self, folder: Path, project: int) -> None:
        self.projects[folder] = project

    def project_of(self, folder: Path) -> int:
        return self.projects.get(folder, 0)

    def quota_of(self, _: Path, project: int) -> ProjectQuota:
        return self.quotas.get(project, ProjectQuota(0, 0, 0, 0))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Stands in for the kernel, which has project quotas on few machines."""
    kernel = Kernel()
    for name in ("set_limit", "assign", "project_of", "quota_of"):
        monkeypatch.setattr(project_quotas, name, getattr(kernel, name))
    return kernel


def _job(tmp_path: Path, uid: str) -> Path:
    folder = tmp_path / "jobs" / uid
    folder.mkdir(parents=True)
    return folder


def test_a_job_keeps_its_number_over_attempts_and_kills(tmp_path: Path, kernel: Kernel) -> None:
    projects = ProjectIds(tmp_path / "projects", tmp_path / "jobs")
    folder = _job(tmp_path, "a")
    for size in (MIB, 2 * MIB):
        bound = projects.bind("a", [folder], first=FIRST, size=size, files=7)
        assert bound.project == kernel.projects[folder] == FIRST
        assert kernel.quotas[FIRST] == ProjectQuota(size, 0, 7, 0)
    assert projects.of_job("a", folder) == FIRST
    assert projects.of_job("b", folder) == 0
    other = projects.bind("b", [_job(tmp_path, "b")], first=FIRST, size=MIB, files=0)
    assert other.project == FIRST + 1


@pytest.mark.parametrize("killed", [False, True])
def test_projects_of_jobs_that_are_gone_are_free(
    tmp_path: Path, kernel: Kernel, *, killed: bool
) -> None:
    projects = ProjectIds(tmp_path / "projects", tmp_path / "jobs")
    projects.free_unused()  # nothing was ever noted
    folder = _job(tmp_path, "a")
    projects.bind("a", [folder], first=FIRST, size=MIB, files=0)
    projects.free_unused()
    assert os.listdir(tmp_path / "projects") == [str(FIRST)]  # noqa: PTH208
    project = projects.of_job("a", folder)
    folder.rmdir()
    if killed:
        projects.free_unused()
    else:
        projects.free(project)
    assert os.listdir(tmp_path / "projects") == []  # noqa: PTH208
    assert kernel.quotas[FIRST].limit == 0


def test_a_number_that_has_files_already_is_somebody_elses(tmp_path: Path, kernel: Kernel) -> None:
    kernel.quotas[FIRST] = ProjectQuota(0, MIB, 0, 1)
    bound = ProjectIds(tmp_path / "projects", tmp_path / "jobs").bind(
        "a", [_job(tmp_path, "a")], first=FIRST, size=MIB, files=0
    )
    assert bound.project == FIRST + 1


@pytest.mark.parametrize(
    ("quota", "tail", "message"),
    [
        (ProjectQuota(64 * MIB, 64 * MIB, 0, 1), None, FULL),
        (ProjectQuota(64 * MIB, 63 * MIB, 0, 1), None, ""),
        (ProjectQuota(64 * MIB, 48 * MIB, 0, 1), b"[Errno 122] Disk quota exceeded", FULL),
        (ProjectQuota(64 * MIB, 48 * MIB, 0, 1), b"[Errno 28] No space left on device", FULL),
        (ProjectQuota(64 * MIB, 48 * MIB, 0, 1), b"ValueError", ""),
        (ProjectQuota(64 * MIB, MIB, 0, 1), b"/dev/shm: No space left on device", ""),
        (ProjectQuota(64 * MIB, MIB, 9, 9), None, "DiskQuotaExceeded: more than 9 files and folders"),
    ],
)  # fmt: skip
def test_a_refused_write_is_told_like_a_measured_one(
    tmp_path: Path, kernel: Kernel, quota: ProjectQuota, tail: bytes | None, message: str
) -> None:
    kernel.quotas[FIRST] = quota
    verdict = ProjectLimit(tmp_path, FIRST, 64 * MIB).verdict(tail)
    assert (verdict.message if verdict else "") == message
    assert verdict is None or verdict.reason is Reason.DISK_QUOTA


def test_why_quotas_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unusable(tmp_path, 0, own_users=True) == "engine.project_id_base is 0"
    assert (
        unusable(tmp_path, FIRST, own_users=False)
        == "jobs have no users and user namespaces of their own"
    )
    monkeypatch.setattr(project_quotas, "enforced_on", lambda _: False)
    assert unusable(tmp_path / "not" / "there", FIRST, own_users=True) == (
        "the file system is not mounted with prjquota"
    )
    monkeypatch.setattr(project_quotas, "enforced_on", lambda _: True)
    assert unusable(tmp_path, FIRST, own_users=True) == ""


def test_a_file_system_without_quotas_says_so() -> None:
    """Whatever this machine's kernel has: ``/proc`` has no quotas."""
    assert unusable(Path("/proc"), FIRST, own_users=True).startswith(
        "the kernel or the file system has none ("
    )
