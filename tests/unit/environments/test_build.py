from __future__ import annotations

import contextlib
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloud_ml.environments.base import EnvironmentFailed, EnvironmentRequest, Prepared
from cloud_ml.environments.build import prepare
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.interpreter import own
from cloud_ml.environments.packages import pipconfig
from cloud_ml.environments.packages.bytecode import compile_packages
from cloud_ml.environments.packages.uv import Uv
from support.environments import OpenSandbox, pack, python
from unit.environments.fake_uv import FakeUv


class Bench:
    """A home for environments, a fake uv, and what was logged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uv = FakeUv(folder / "uv")
        self.sandbox = OpenSandbox()
        self.log = b""
        self.catalog = Catalog.load()
        self.stages: list[str] = []

    def request(
        self, trainer: Path | None, module: str | None = "task", **facts: str
    ) -> EnvironmentRequest:
        return EnvironmentRequest(
            tenant=facts.get("tenant", "7"),
            trainer=trainer,
            trainer_name=trainer.name if trainer else "",
            module=module,
            framework=facts.get("framework"),
            framework_version=facts.get("version"),
            requires=tuple(facts.get("requires", "").split()),
            keras_backend=facts.get("keras_backend", ""),
        )

    def prepare(self, trainer: Path | None, module: str | None = "task", **facts: str) -> Prepared:
        return prepare(
            self.request(trainer, module, **facts),
            home=self.folder / "home",
            venv=self.folder / "job" / "env",
            uv=self.uv.path,
            catalog=self.catalog,
            sandbox=self.sandbox,
            log=self._write,
            timeout_s=60,
            reached=self.stages.append,
        )

    def fails(self, trainer: Path | None, **facts: str) -> EnvironmentFailed:
        with pytest.raises(EnvironmentFailed) as caught:
            self.prepare(trainer, **facts)
        return caught.value

    def tree(self, top: str = "code", **files: str) -> Path:
        folder = self.folder / "sources"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, text in files.items():
            (folder / name.replace("__dot__", ".")).write_text(text)
        return pack(folder, self.folder / "trainer.tar.gz", top)

    def output(self, prepared: Prepared, *arguments: str) -> str:
        done = python(prepared.python, prepared.environment, *arguments, folder=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def log_writer(self, words: bytes) -> None:
        self._write(words)

    def _write(self, words: bytes) -> None:
        self.log += words


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return Bench(tmp_path)


def test_a_packed_folder_runs(bench: Bench) -> None:
    trainer = bench.tree(
        task__dot__py="import sys, numpy\nprint('ran with', sys.argv[1:])",
        requirements__dot__txt="numpy\n",
    )
    prepared = bench.prepare(trainer)
    assert bench.output(prepared, "-m", "task", "--a", "b c") == "ran with ['--a', 'b c']\n"
    assert "numpy==1.0" in prepared.lock
    assert prepared.runtime.startswith("python 3.")
    assert all(bind.source == bind.target for bind in prepared.binds)


def test_the_second_time_nothing_is_started(bench: Bench) -> None:
    trainer = bench.tree(task__dot__py="print('again')")
    first = bench.prepare(trainer)
    calls, commands = bench.uv.calls, len(bench.sandbox.commands)
    shutil.rmtree(bench.folder / "job")
    second = bench.prepare(trainer)
    assert (bench.uv.calls, len(bench.sandbox.commands)) == (calls, commands)
    assert second == first
    assert bench.output(second, "-m", "task") == "again\n"
    assert bench.stages == ["fetched", "resolved", "installed"], "of the first time"


def test_new_code_with_the_same_needs_asks_uv_for_nothing(bench: Bench) -> None:
    bench.prepare(bench.tree(task__dot__py="print(1)", requirements__dot__txt="six"))
    calls = bench.uv.calls
    prepared = bench.prepare(bench.tree(task__dot__py="print(2)", requirements__dot__txt="six"))
    assert bench.uv.calls == calls
    assert bench.output(prepared, "-m", "task") == "2\n"


def test_what_was_removed_is_made_again(bench: Bench) -> None:
    trainer = bench.tree(task__dot__py="print('back')")
    bench.prepare(trainer)
    shutil.rmtree(bench.folder / "home" / "layers")
    shutil.rmtree(bench.folder / "home" / "tenants" / "7" / "trainers")
    assert bench.output(bench.prepare(trainer), "-m", "task") == "back\n"


def test_one_file(bench: Bench) -> None:
    file = bench.folder / "solo.py"
    file.write_text("print('solo')")
    assert bench.output(bench.prepare(file, "solo"), "-m", "solo") == "solo\n"


def test_a_wheel_needs_no_build(bench: Bench) -> None:
    wheel = bench.folder / "trainer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("trainer/__init__.py", "")
        archive.writestr("trainer/task.py", "print('wheel')")
        archive.writestr(
            "trainer-1.0.dist-info/METADATA", "Name: trainer\nVersion: 1.0\nRequires-Dist: six\n"
        )
    prepared = bench.prepare(wheel, "trainer.task")
    assert bench.sandbox.commands == []
    assert bench.output(prepared, "-m", "trainer.task") == "wheel\n"
    assert "six==1.0" in prepared.lock


@pytest.mark.parametrize("content", ["good", "damaged"])
def test_where_no_process_can_be_confined_a_wheel_is_read_in_the_sandbox(
    bench: Bench, content: str
) -> None:
    bench.sandbox.forks = False
    wheel = bench.folder / "trainer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("trainer/__init__.py", "")
        archive.writestr("trainer/task.py", "print('wheel')")
        archive.writestr("trainer-1.0.dist-info/METADATA", "Name: trainer\nVersion: 1.0\n")
    if content == "damaged":
        wheel.write_bytes(wheel.read_bytes()[:-30])
        assert bench.fails(wheel).reason == "TrainerInvalid"
    else:
        assert bench.output(bench.prepare(wheel, "trainer.task"), "-m", "trainer.task") == "wheel\n"
    assert len(bench.sandbox.commands) == 1


def test_small_sources_need_no_build_and_no_interpreter_of_their_own(bench: Bench) -> None:
    trainer = bench.tree(task__dot__py="print('tree')", requirements__dot__txt="six")
    prepared = bench.prepare(trainer)
    assert bench.sandbox.commands == []
    assert "six==1.0" in prepared.lock
    assert bench.output(prepared, "-m", "task") == "tree\n"
    task = Path(prepared.folder, "task.py")
    assert [*task.parent.glob("__pycache__/task.*.pyc")], "compiled once for all jobs"
    task.write_text("print('changed')")
    assert bench.output(prepared, "-m", "task") == "changed\n", "a job may change its copy"


@pytest.mark.parametrize("content", ["good", "damaged"])
def test_where_no_process_can_be_confined_sources_are_read_in_the_sandbox(
    bench: Bench, content: str
) -> None:
    bench.sandbox.forks = False
    trainer = bench.tree(task__dot__py="print('tree')")
    if content == "damaged":
        trainer.write_bytes(trainer.read_bytes()[:-30])
        assert bench.fails(trainer).reason == "TrainerInvalid"
    else:
        assert bench.output(bench.prepare(trainer), "-m", "task") == "tree\n"
    assert len(bench.sandbox.commands) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"task.py": "#" * 300_000},
        {f"part_{number}.py": "" for number in range(600)},
        {"task.py": "print('tree')", "pyproject.toml": "a = " + "[" * 100_000},
    ],
    ids=["much code", "many files", "what is not understood"],
)
def test_what_takes_long_or_is_strange_is_left_to_the_sandbox(
    bench: Bench, files: Mapping[str, str]
) -> None:
    trainer = bench.tree(**{name.replace(".", "__dot__"): text for name, text in files.items()})
    with contextlib.suppress(EnvironmentFailed):
        bench.prepare(trainer, None)
    assert len(bench.sandbox.commands) >= 1


_SETUP = """from setuptools import setup
setup(name='mine', version='1.0', packages=['mine'], install_requires=['six'])
"""


@pytest.mark.parametrize("forks", [True, False])
def test_a_setup_file_of_constants_is_not_run(bench: Bench, forks: bool) -> None:
    bench.sandbox.forks = forks
    package = bench.folder / "sources" / "mine"
    bench.tree()
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "task.py").write_text(
        "from importlib.metadata import version\nprint(version('mine'))"
    )
    (package.parent / "setup.py").write_text(_SETUP)
    trainer = pack(package.parent, bench.folder / "trainer.tar.gz", "code")
    prepared = bench.prepare(trainer, "mine.task")
    assert len(bench.sandbox.commands) == (0 if forks else 1)
    assert "six==1.0" in prepared.lock
    assert bench.output(prepared, "-m", "mine.task") == "1.0\n"
    assert b"Installed mine 1.0" in bench.log


def test_what_small_sources_require_wrongly_is_told_without_the_sandbox(bench: Bench) -> None:
    failure = bench.fails(bench.tree(task__dot__py="", requirements__dot__txt="no name!"))
    assert failure.reason == "TrainerInvalid"
    assert "requirements.txt" in failure.message
    assert bench.sandbox.commands == []


def test_a_wheel_is_compiled_once_for_all_jobs(bench: Bench) -> None:
    wheel = bench.folder / "trainer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("trainer/__init__.py", "")
        archive.writestr(
            "trainer/task.py", "import traceback\nprint(traceback.extract_stack()[-1].filename)\n"
        )
        archive.writestr("trainer/broken.py", "print(")
        archive.writestr("trainer/deep.py", "x = " + "-" * 100_000 + "1")
        archive.writestr(
            "trainer-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: trainer\nVersion: 1.0\n"
        )
    prepared = bench.prepare(wheel, "trainer.task")
    task = Path(prepared.own_sites[0], "trainer", "task.py")
    text = task.read_text()
    task.write_text("raise AssertionError('compiled anew')")
    assert bench.output(prepared, "-c", "import trainer.task").strip() == str(task), (
        "not the place where it was compiled"
    )
    task.write_text(text)
    compiled = {path.name.partition(".")[0] for path in task.parent.glob("__pycache__/*.pyc")}
    assert compiled == {"__init__", "task"}
    done = python(
        prepared.python, prepared.environment, "-c", "import trainer.broken", folder=bench.folder
    )
    assert "SyntaxError" in done.stderr


def test_without_a_trainer_there_is_the_bare_runtime(bench: Bench) -> None:
    prepared = bench.prepare(None, None, framework="python")
    assert bench.output(prepared, "-c", "import pip; print('bare')") == "bare\n"
    assert prepared.trainer_digest == ""


def test_tensorflow_is_found_out_and_stands_in_for_what_is_required(bench: Bench) -> None:
    trainer = bench.tree(
        task__dot__py="import tensorflow as tf\ntf.Session()",
        requirements__dot__txt="tensorflow==1.4.0\nsix",
    )
    prepared = bench.prepare(trainer)
    assert prepared.runtime == "tensorflow 1"
    assert any("tf.Session" in notice for notice in prepared.notices)
    assert any("tensorflow==1.4.0" in notice for notice in prepared.notices)
    assert "tensorflow-cpu==1.0" in prepared.lock
    assert "tensorflow==" not in prepared.lock
    assert prepared.environment["TF_USE_LEGACY_KERAS"] == "1"
    assert prepared.base_memory > 2**30


@pytest.mark.parametrize(
    ("backend", "runtime"),
    [("jax", "keras 3-jax"), ("torch", "keras 3-torch"), ("tensorflow", "keras 3")],
)
@pytest.mark.parametrize("framework", ["keras", ""])
def test_the_variable_of_keras_decides_its_backend(
    bench: Bench, backend: str, runtime: str, framework: str
) -> None:
    trainer = bench.tree(task__dot__py="import keras, torch\nprint(keras.backend)")
    chosen = {"framework": framework} if framework else {}
    assert bench.prepare(trainer, keras_backend=backend, **chosen).runtime == runtime


def test_what_the_job_requires_is_added_to_what_the_code_requires(bench: Bench) -> None:
    trainer = bench.tree(task__dot__py="", requirements__dot__txt="six")
    assert "tqdm" not in bench.prepare(trainer).lock
    lock = bench.prepare(trainer, requires="tqdm rich").lock
    assert all(f"{name}==1.0" in lock for name in ("six", "tqdm", "rich"))


def test_a_lock_made_beside_a_gpu_installs_the_cpu_build(bench: Bench) -> None:
    trainer = bench.tree(
        task__dot__py="import torch",
        requirements__dot__txt="torch==1.0\nnvidia-nccl-cu12==1.0\ntriton==1.0",
    )
    prepared = bench.prepare(trainer)
    assert prepared.runtime.startswith("pytorch")
    assert "nvidia" not in prepared.lock
    assert any(
        "the pin of nvidia-nccl-cu12 and 1 more is left out" in notice
        for notice in prepared.notices
    )


def test_the_version_of_python_that_code_asks_for(bench: Bench) -> None:
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    bench.catalog = Catalog.load(None, ("3.8", "3.98"))
    script = "# /// script\n# requires-python = '{}'\n# ///\n"
    usual = bench.prepare(bench.tree(task__dot__py=script.format(f">={minor}")))
    assert (usual.runtime, usual.notices) == (f"python {minor}", ())
    absent = bench.prepare(bench.tree(task__dot__py=script.format(">=3.99")))
    assert "task.py asks for Python >=3.99, and the job gets 3." in absent.notices[0]
    with pytest.raises(EnvironmentFailed, match=r"Python 3\.8 "):  # which is not on this machine
        bench.prepare(bench.tree(task__dot__py=script.format("<3.9")))


def test_a_pin_that_the_runtime_does_not_meet_is_refused(bench: Bench) -> None:
    trainer = bench.tree(
        task__dot__py="import tensorflow", requirements__dot__txt="tensorflow==2.15.0"
    )
    failure = bench.fails(trainer, framework="tensorflow")
    assert "tensorflow==2.15.0" in failure.message
    assert "tensorflow 2.21" in failure.message


def test_requirements_without_a_solution(bench: Bench) -> None:
    bench.uv.refuse("nonesuch")
    failure = bench.fails(bench.tree(task__dot__py="", requirements__dot__txt="nonesuch"))
    assert failure.reason == "EnvironmentFailed"
    assert b"No solution found: there is no nonesuch" in bench.log
    assert bench.log.count(b"nonesuch") == 1


def test_a_package_that_no_index_has_is_asked_for_once(bench: Bench) -> None:
    """Three more questions took 15 seconds where the tenant's network leads to no index."""
    bench.uv.not_know("nonesuch")
    bench.prepare(bench.tree(task__dot__py=""))
    before = bench.uv.calls
    failure = bench.fails(bench.tree(task__dot__py="", requirements__dot__txt="nonesuch"))
    assert "nonesuch was not found in the package registry" in failure.message
    assert bench.uv.calls == before + 1


def test_an_installation_that_fails(bench: Bench) -> None:
    bench.uv.break_installing()
    failure = bench.fails(bench.tree(task__dot__py=""))
    assert failure.reason == "EnvironmentFailed"
    assert b"disk of glass" in bench.log
    assert [one for one in (bench.folder / "home" / "layers").iterdir() if one.is_dir()] == []


@pytest.mark.parametrize("failures", [1, 2])
def test_a_download_that_the_network_fails_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(
        "cloud_ml.environments.packages.layers.time", SimpleNamespace(sleep=pauses.append)
    )
    bench.uv.lose_network(failures)
    prepared = bench.prepare(bench.tree(task__dot__py="print('here')"))
    assert bench.output(prepared, "-m", "task") == "here\n"
    assert pauses[:failures] == [2.0, 4.0][:failures]
    assert b"The download failed: " in bench.log
    assert b"Try 2 of 3 in 2 s" in bench.log
    assert not list((bench.folder / "home").glob("layers/*/site-packages/half.py")), (
        "nothing of the try that failed"
    )


def test_a_network_that_stays_away_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "cloud_ml.environments.packages.layers.time", SimpleNamespace(sleep=lambda _: None)
    )
    bench.uv.lose_network(9)
    assert (
        "could not be installed: the network failed"
        in bench.fails(bench.tree(task__dot__py="")).message
    )


def test_packages_are_compiled_once_for_all_jobs_without_their_tests(bench: Bench) -> None:
    prepared = bench.prepare(bench.tree(task__dot__py="", requirements__dot__txt="six"))
    compiled = [
        path
        for layer in (bench.folder / "home" / "layers").glob("*")
        for path in layer.rglob("*.pyc")
    ]
    assert {path.parent.parent.name for path in compiled} >= {"six", "pip"}
    assert b"Bytecode compiled" in bench.log
    site = bench.folder / "more" / "site-packages"
    for name in ("pkg/__init__.py", "pkg/tests/test_a.py", "pkg/broken.py", "pkg/testing.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("print(" if "broken" in name else "")
    many = {f"module_{number}" for number in range(250)}  # so many are shared among processes
    for name in many:
        (site / f"{name}.py").write_text(f"{name} = 1\n")
    (site / "gone.py").symlink_to("nowhere.py")
    shared = Uv(bench.uv.path, pipconfig.read({}, []), bench.folder / "cache", 60.0)
    compile_packages(site, own(), shared, bench.log_writer)
    assert {path.name.partition(".")[0] for path in site.rglob("*.pyc")} == {
        "__init__",
        "testing",
        *many,
    }
    assert prepared.lock


def test_an_installation_that_takes_too_much_of_the_disk_is_ended(bench: Bench) -> None:
    """Anybody can publish a wheel, and have the platform unpack it."""
    bench.sandbox.objection = "DiskQuotaExceeded: 20G exceeded"
    failure = bench.fails(bench.tree(task__dot__py="", requirements__dot__txt="six"))
    assert failure.reason == "EnvironmentFailed"
    assert "uv cannot be run: DiskQuotaExceeded: 20G exceeded" in failure.message


def test_without_wheels_the_tenant_builds_for_itself(bench: Bench) -> None:
    bench.uv.need_build("ancient")
    trainer = bench.tree(
        task__dot__py="import ancient; print(ancient.__file__)", requirements__dot__txt="ancient"
    )
    prepared = bench.prepare(trainer)
    assert f"{bench.folder}/home/tenants/7/layers/" in bench.output(prepared, "-m", "task")
    assert str(bench.uv.path) in [command[0] for command in bench.sandbox.commands]


@pytest.mark.parametrize(("requires", "version"), [("old", "1.0"), ("old==0.1", "0.1")])
def test_no_release_of_years_ago_is_taken_because_its_needs_have_wheels(
    bench: Bench, requires: str, version: str
) -> None:
    bench.uv.have_old_wheels("old")
    prepared = bench.prepare(bench.tree(task__dot__py="", requirements__dot__txt=requires))
    assert f"old=={version}" in prepared.lock


def test_where_requirements_exclude_the_newest_release_nothing_is_built(bench: Bench) -> None:
    bench.uv.exclude_newest("old")
    trainer = bench.tree(
        task__dot__py="import old; print(old.__file__)", requirements__dot__txt="old"
    )
    prepared = bench.prepare(trainer)
    assert "old==0.1" in prepared.lock
    assert "/tenants/" not in bench.output(prepared, "-m", "task")
    calls = bench.uv.calls
    bench.prepare(trainer)
    assert bench.uv.calls == calls, "the answers are kept"


def test_an_address_is_never_fetched_by_the_platform(bench: Bench) -> None:
    trainer = bench.tree(
        task__dot__py="",
        requirements__dot__txt="mine @ https://example.org/mine-1.0-py3-none-any.whl",
    )
    bench.prepare(trainer)
    by_tenant = [command for command in bench.sandbox.commands if command[0] == str(bench.uv.path)]
    assert len(by_tenant) == 2


@pytest.mark.parametrize(
    "needs",
    ["-r /etc/passwd", "--find-links=/root", "x @ file:///etc/passwd", "a==1\\n-r /etc/passwd"],
)
def test_what_a_build_needs_names_packages_and_no_files(bench: Bench, needs: str) -> None:
    """The platform's own uv resolves it, outside of the sandbox."""
    system = f'[build-system]\nrequires = ["{needs}"]\nbuild-backend = "x"\n'
    calls = bench.uv.calls
    failure = bench.fails(bench.tree(task__dot__py="", pyproject__dot__toml=system))
    assert failure.reason == "TrainerInvalid"
    assert "build" in failure.message
    assert bench.uv.calls - calls <= 2, "for the usual tools"
    assert b"root:" not in bench.log


def test_an_address_that_a_build_needs_is_fetched_by_the_tenant(bench: Bench) -> None:
    system = '[build-system]\nrequires = ["x @ https://example.org/x-1.0-py3-none-any.whl"]\nbuild-backend = "x"\n'
    bench.fails(bench.tree(task__dot__py="", pyproject__dot__toml=system))
    by_tenant = [command for command in bench.sandbox.commands if command[0] == str(bench.uv.path)]
    assert by_tenant != []


def test_tenants_do_not_share_what_was_built(bench: Bench) -> None:
    trainer = bench.tree(task__dot__py="")
    folders = [
        {bind.source for bind in bench.prepare(trainer, tenant=tenant).binds}
        for tenant in ("7", "8")
    ]
    assert len([path for path in folders[0] ^ folders[1] if "/tenants/" in path]) == 2


def test_an_isolated_job_sees_its_environment_at_its_place(bench: Bench) -> None:
    bench.sandbox.isolated = True
    prepared = bench.prepare(bench.tree(task__dot__py=""))
    assert prepared.python == "/env/bin/python"
    assert prepared.environment["VIRTUAL_ENV"] == "/env"
    assert prepared.environment["PATH"].startswith("/env/bin:")


def test_a_trainer_that_is_not_there(bench: Bench) -> None:
    assert bench.fails(bench.folder / "absent.tar.gz").reason == "TrainerNotFound"


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_archive(bench: Bench, content: bytes) -> None:
    file = bench.folder / "trainer.tar.gz"
    file.write_bytes(content)
    failure = bench.fails(file)
    assert failure.reason == "TrainerInvalid"
    assert "trainer.tar.gz" in failure.message


def test_a_requirement_that_reaches_for_files(bench: Bench) -> None:
    failure = bench.fails(
        bench.tree(task__dot__py="", requirements__dot__txt="x @ file:///etc/passwd")
    )
    assert failure.reason == "TrainerInvalid"
    assert "file:///etc/passwd" in failure.message


def test_uv_is_missing(bench: Bench) -> None:
    bench.uv.path.unlink()
    failure = bench.fails(bench.tree(task__dot__py=""))
    assert "uv cannot be run" in failure.message


def test_an_unknown_framework(bench: Bench) -> None:
    assert "caffe" in bench.fails(bench.tree(task__dot__py=""), framework="caffe").message


def test_files_are_readable_whatever_the_mask_of_the_server(bench: Bench, tmp_path: Path) -> None:
    import os

    before = os.umask(0o077)
    try:
        prepared = bench.prepare(bench.tree(task__dot__py=""))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    site = Path(prepared.binds[0].source)
    assert site.stat().st_mode & 0o777 == 0o755
    assert (site / "task.py").stat().st_mode & 0o777 == 0o644
