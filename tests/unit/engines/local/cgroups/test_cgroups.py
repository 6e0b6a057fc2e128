"""Control groups of both versions, over folders that look like them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.cgroups import (
    Group,
    GroupV1,
    GroupV2,
    HierarchyV1,
    HierarchyV2,
    Limits,
    Pool,
    files,
)

V1 = ("memory", "pids", "cpu", "cpuacct")
V1_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "cgroup.procs"),
    "pids": ("pids.max", "cgroup.procs"),
    "cpu": ("cpu.cfs_quota_us", "cpu.shares", "cgroup.procs"),
    "cpuacct": ("cgroup.procs",),
}
V2_FILES = (
    "memory.max",
    "memory.swap.max",
    "pids.max",
    "cpu.max",
    "cpu.weight",
    "cgroup.procs",
    "cgroup.kill",
)


@pytest.fixture
def version1(tmp_path: Path) -> GroupV1:
    folders = {controller: tmp_path / controller / "g" for controller in V1}
    for controller, folder in folders.items():
        folder.mkdir(parents=True)
        for name in V1_FILES[controller]:
            (folder / name).touch()
    return GroupV1("g", folders)


@pytest.fixture
def version2(tmp_path: Path) -> GroupV2:
    folder = tmp_path / "g"
    folder.mkdir()
    for name in V2_FILES:
        (folder / name).touch()
    return GroupV2("g", folder)


LIMITS = Limits(memory_bytes=100 << 20, cpu_millis=500, processes=64)


def test_limits_of_version_1(version1: GroupV1, tmp_path: Path) -> None:
    version1.limit(LIMITS)
    written = {
        "memory/g/memory.limit_in_bytes": "104857600",
        "memory/g/memory.memsw.limit_in_bytes": "104857600",
        "pids/g/pids.max": "64",
        "cpu/g/cpu.cfs_quota_us": "50000",
        "cpu/g/cpu.shares": "512",
    }
    assert {name: (tmp_path / name).read_text() for name in written} == written


def test_limits_of_version_2(version2: GroupV2, tmp_path: Path) -> None:
    version2.limit(LIMITS)
    written = {
        "memory.max": "104857600",
        "memory.swap.max": "0",
        "pids.max": "64",
        "cpu.max": "50000 100000",
    }
    assert {name: (tmp_path / "g" / name).read_text() for name in written} == written


def test_a_request_of_processors_is_a_share_and_no_limit(
    version1: GroupV1, version2: GroupV2, tmp_path: Path
) -> None:
    for group in (version1, version2):
        group.limit(Limits(cpu_request_millis=2000))
    assert (tmp_path / "cpu/g/cpu.shares").read_text() == "2048"
    assert (tmp_path / "cpu/g/cpu.cfs_quota_us").read_text() == ""
    assert (tmp_path / "g/cpu.weight").read_text() == "200"
    assert (tmp_path / "g/cpu.max").read_text() == ""


@pytest.mark.parametrize("version", ["version1", "version2"])
def test_what_is_not_limited_is_left_alone(
    version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    group: Group = request.getfixturevalue(version)
    group.limit(Limits())
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {""}


@pytest.mark.parametrize("version", ["version1", "version2"])
def test_without_swap_accounting_memory_is_limited_all_the_same(
    version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    group: Group = request.getfixturevalue(version)
    for name in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
        for path in tmp_path.rglob(name):
            path.unlink()
    group.limit(LIMITS)
    (limit,) = [*tmp_path.rglob("memory.limit_in_bytes"), *tmp_path.rglob("memory.max")]
    assert limit.read_text() == "104857600"


def test_a_tiny_share_is_one_that_the_kernel_takes(
    version1: GroupV1, version2: GroupV2, tmp_path: Path
) -> None:
    for group in (version1, version2):
        group.limit(Limits(cpu_millis=1))
    assert (tmp_path / "cpu/g/cpu.cfs_quota_us").read_text() == "1000"
    assert (tmp_path / "cpu/g/cpu.shares").read_text() == "2"
    assert (tmp_path / "g/cpu.max").read_text() == "1000 100000"


@pytest.mark.parametrize("version", ["version1", "version2"])
def test_joining_writes_the_caller_into_every_folder(
    version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.getfixturevalue(version).join()
    assert {path.read_text() for path in tmp_path.rglob("cgroup.procs")} == {"0"}


def test_a_sample_of_version_1(version1: GroupV1, tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for name, text in {
        "cpuacct/g/cpuacct.usage": "2500000000",
        "cpuacct/g/cpuacct.stat": f"user {2 * ticks}\nsystem {ticks}",
        "memory/g/memory.usage_in_bytes": "300",
        "memory/g/memory.max_usage_in_bytes": "400",
        "memory/g/memory.stat": "cache 1\nrss 5\ntotal_rss 250\ntotal_pgmajfault 7\n",
        "memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "pids/g/pids.current": "9",
    }.items():
        (tmp_path / name).write_text(text)
    assert version1.sample() == cgroups.Sample(2.5, 2.0, 300, 400, 9, 250, 7, 3)


def test_a_sample_of_version_2(version2: GroupV2, tmp_path: Path) -> None:
    for name, text in {
        "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
        "memory.current": "300",
        "memory.peak": "400",
        "memory.stat": "anon 250\nfile 50\npgmajfault 7\n",
        "memory.events": "low 0\nhigh 0\nmax 6\noom 4\noom_kill 3\n",
        "pids.current": "9",
    }.items():
        (tmp_path / "g" / name).write_text(text)
    assert version2.sample() == cgroups.Sample(2.5, 2.0, 300, 400, 9, 250, 7, 3)
    (tmp_path / "g" / "memory.peak").unlink()
    assert version2.sample().memory_peak_bytes == 300, "older kernels keep no peak"


@pytest.mark.parametrize("kind", [HierarchyV1, HierarchyV2])
def test_a_group_that_is_gone_counts_nothing_and_is_removed(kind: type, tmp_path: Path) -> None:
    folders = {controller: str(tmp_path / controller) for controller in V1}
    hierarchy = HierarchyV1(folders) if kind is HierarchyV1 else HierarchyV2(str(tmp_path / "v2"))
    group = hierarchy.group("never-made")
    assert group.sample() == cgroups.Sample(0, 0, 0, 0, 0, 0, 0, 0)
    assert group.processes() == []
    assert group.kill() == 0
    assert group.remove()
    made = hierarchy.make("made")
    assert hierarchy.names() == ["made"]
    assert made.remove()
    assert hierarchy.names() == []


def test_killing_in_version_2_is_the_kernels_work(version2: GroupV2, tmp_path: Path) -> None:
    (tmp_path / "g" / "cgroup.procs").write_text("999999997\n999999998\n")
    assert version2.kill() == 2
    assert (tmp_path / "g" / "cgroup.kill").read_text() == "1"


def test_a_hierarchy_is_found_again_by_its_description(tmp_path: Path) -> None:
    one = HierarchyV1({controller: str(tmp_path / controller) for controller in V1})
    two = HierarchyV2(str(tmp_path / "v2"))
    for hierarchy in (one, two):
        again = cgroups.restore(hierarchy.description())
        assert again is not None
        assert again.description() == hierarchy.description()
    assert cgroups.restore({}) is None


# ---- finding


def _v2_root(root: Path, *levels: str, controllers: str = "cpu memory pids io") -> None:
    for level in ("", *levels):
        folder = root / level
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").touch()


def test_controllers_that_are_named_and_not_mounted_are_said(tmp_path: Path) -> None:
    """As in a container of version 1 that does not show the hierarchies."""
    found, why = cgroups.find("i", root=tmp_path, own="3:memory:/docker\n2:cpu,cpuacct:/docker\n")
    assert found is None
    assert "not mounted" in why


def test_without_any_mount_the_reason_is_told(tmp_path: Path) -> None:
    found, why = cgroups.find("i", root=tmp_path, own="0::/\n")
    assert found is None
    assert "not mounted" in why


def test_version_2_without_the_memory_controller_is_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    _v2_root(tmp_path, "user", "user/scope", "user/cloudml", controllers="cpu pids")
    found, why = cgroups.find("cloudml", root=tmp_path, own="0::/user/scope\n")
    assert found is None
    assert "systemd-run" in why


class _KernelV2:
    """Does to folders below ``root`` what the kernel does in version 2: fills them, and keeps
    its rules.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._mkdir, self._rmdir, self._write = Path.mkdir, Path.rmdir, files.write
        self.mkdir(root)
        monkeypatch.setattr(
            Path,
            "mkdir",
            lambda path, *words, **more: self.mkdir(path, *words, **more),  # noqa: PLW0108
        )
        monkeypatch.setattr(Path, "rmdir", lambda path: self.rmdir(path))  # noqa: PLW0108
        monkeypatch.setattr(files, "write", self.write)

    def mkdir(self, path: Path, *words: object, **more: object) -> None:
        if path.exists() and path != self.root:
            return
        self._mkdir(path, *words, exist_ok=True)
        above = path.parent / "cgroup.subtree_control"
        given = "cpu memory pids io" if path == self.root else above.read_text().replace("+", "")
        (path / "cgroup.controllers").write_text(given)
        for name in ("cgroup.procs", "cgroup.kill", "cgroup.subtree_control"):
            (path / name).touch()
        for controller, names in {
            "memory": ["memory.max"],
            "pids": ["pids.max"],
            "cpu": ["cpu.max"],
        }.items():
            for name in names if controller in given.split() and path != self.root else ():
                (path / name).touch()

    def rmdir(self, path: Path) -> None:
        if any(entry.is_dir() for entry in path.iterdir()):
            raise OSError(errno.EBUSY, "busy", str(path))
        for entry in path.iterdir():
            entry.unlink()
        self._rmdir(path)

    def write(self, path: Path, value: object) -> None:
        if (
            path.name == "cgroup.subtree_control"
            and path.parent != self.root
            and (path.parent / "cgroup.procs").read_text()
        ):
            raise OSError(errno.EBUSY, "processes are in it", str(path))
        self._write(path, value)


def test_version_2_is_found_beside_a_delegated_scope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = _KernelV2(tmp_path / "cg", monkeypatch)
    files.write(kernel.root / "cgroup.subtree_control", "+memory +pids +cpu")
    user, scope = kernel.root / "user", kernel.root / "user" / "scope"
    kernel.mkdir(user)
    files.write(user / "cgroup.subtree_control", "+memory +pids +cpu")
    kernel.mkdir(scope)
    (scope / "cgroup.procs").write_text("4711")
    found, why = cgroups.find("cloudml", root=kernel.root, own="0::/user/scope\n")
    assert why == ""
    assert found is not None
    assert found.description() == {"version": "2", "folder": str(user / "cloudml")}
    assert found.names() == [], "the probe is gone"
    group = found.make("task-1")
    group.limit(LIMITS)
    assert (user / "cloudml/task-1/memory.max").read_text() == "104857600"
    assert group.remove()


def test_version_2_is_found_at_the_top_when_the_own_place_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = _KernelV2(tmp_path / "cg", monkeypatch)
    files.write(kernel.root / "cgroup.subtree_control", "+memory +pids +cpu")
    kernel.mkdir(kernel.root / "shell")
    (kernel.root / "shell" / "cgroup.procs").write_text("1")
    kernel.mkdir(kernel.root / "shell" / "inner")
    found, why = cgroups.find("cloudml", root=kernel.root, own="0::/shell/inner\n")
    assert why == ""
    assert found is not None
    assert found.description() == {"version": "2", "folder": str(kernel.root / "cloudml")}


# ---- the pool


class _Fake(Group):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.busy = 0
        self._log = log

    def limit(self, limits: Limits) -> None: ...

    def procs_files(self) -> list[str]:
        return []

    def processes(self) -> list[int]:
        return []

    def sample(self) -> cgroups.Sample:
        raise NotImplementedError

    def kill(self) -> int:
        self._log.append(f"kill {self.name}")
        return self.busy

    def remove(self) -> bool:
        self._log.append(f"remove {self.name}")
        self.busy -= 1
        return self.busy < 0


class _FakeHierarchy(HierarchyV2):
    def __init__(self) -> None:
        super().__init__("/nowhere")
        self.log: list[str] = []
        self.there: list[str] = []

    def make(self, name: str) -> Group:
        self.log.append("make")
        return _Fake(name, self.log)

    def group(self, name: str) -> Group:
        return _Fake(name, self.log)

    def names(self) -> list[str]:
        return self.there


def test_groups_are_made_ahead_and_each_serves_once() -> None:
    hierarchy = _FakeHierarchy()
    pool = Pool(hierarchy, size=2)
    while pool.tidy():
        pass
    assert hierarchy.log == ["make", "make"]
    taken = [pool.take() for _ in range(3)]
    assert len({group.name for group in taken}) == 3
    assert hierarchy.log == ["make"] * 3


def test_a_used_group_is_killed_and_removed_even_if_it_takes_several_tries() -> None:
    hierarchy = _FakeHierarchy()
    pool = Pool(hierarchy, size=0)
    group = pool.take()
    group.busy = 1  # type: ignore[attr-defined]
    pool.give_back(group)
    assert pool.waiting
    assert not pool.tidy()
    assert pool.waiting
    assert pool.tidy()
    assert not pool.waiting


def test_what_a_predecessor_left_is_swept_but_for_what_is_in_use() -> None:
    hierarchy = _FakeHierarchy()
    hierarchy.there = ["task-1", "task-2", "probe-3"]
    pool = Pool(hierarchy, size=0)
    pool.sweep(["task-2"])
    while pool.tidy():
        pass
    assert [line for line in hierarchy.log if line.startswith("remove")] == [
        "remove task-1",
        "remove probe-3",
    ]
