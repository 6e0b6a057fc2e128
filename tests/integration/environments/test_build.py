"""Real environments by the real uv. What is downloaded stays for the next run (see
``environment_home``).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cloud_ml
from cloud_ml.environments.base import EnvironmentFailed, EnvironmentRequest, Prepared
from cloud_ml.environments.build import prepare
from cloud_ml.environments.catalog import Catalog
from support.environments import EXAMPLES, OpenSandbox, environment_home, pack, python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Job:
    """One job's folder, and environments prepared for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.log = b""
        self.sandbox = OpenSandbox()

    def prepare(
        self,
        trainer: Path | None,
        framework: str | None = None,
        version: str | None = None,
        *,
        home: Path | None = None,
    ) -> Prepared:
        uv = Path(sys.executable).parent / "uv"
        return prepare(
            EnvironmentRequest(
                "1", trainer, trainer.name if trainer else "", "trainer.task", framework, version
            ),
            home=home or environment_home(),
            venv=self.folder / "env",
            uv=uv if uv.exists() else Path(shutil.which("uv") or "uv"),
            catalog=Catalog.load(),
            sandbox=self.sandbox,
            log=self._write,
        )

    def project(self, **files: str) -> Path:
        """A packed project with ``trainer/task.py`` and ``files``."""
        sources = self.folder / "sources"
        shutil.rmtree(sources, ignore_errors=True)
        (sources / "trainer").mkdir(parents=True)
        (sources / "trainer" / "__init__.py").touch()
        for name, text in files.items():
            place = "trainer/task.py" if name == "task" else name.replace("__", ".")
            (sources / place).write_text(text)
        return pack(sources, self.folder / "trainer-1.0.tar.gz")

    def run(self, prepared: Prepared, *arguments: str, module: str = "trainer.task") -> str:
        environment = {**prepared.environment, "HOME": str(self.work)}
        done = python(prepared.python, environment, "-m", module, *arguments, folder=self.work)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _write(self, words: bytes) -> None:
        self.log += words


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: pack(EXAMPLES / name, tmp_path / f"{name}.tar.gz", f"{name}-1.0")


def test_an_old_style_sdist(job: Job, example: Callable[[str], Path]) -> None:
    prepared = job.prepare(example("plain"))
    assert "argument 2: b c\n" in job.run(prepared, "--a", "b c")
    assert (
        job.prepare(example("plain").rename(job.folder / "same.tar.gz")).runtime == prepared.runtime
    )
    again = job.prepare(job.folder / "same.tar.gz")
    commands = len(job.sandbox.commands)
    assert job.prepare(job.folder / "same.tar.gz") == again
    assert len(job.sandbox.commands) == commands


def test_its_requirements_are_installed_exactly(job: Job) -> None:
    trainer = job.project(
        task="import six, importlib.metadata as m; print(m.version('six'), m.version('demo'))",
        setup__py="from setuptools import setup, find_packages\n"
        "setup(name='demo', version='2.5', packages=find_packages(), "
        "install_requires=['six==1.16.0'])",
    )
    prepared = job.prepare(trainer)
    assert job.run(prepared) == "1.16.0 2.5\n"
    assert "six==1.16.0" in prepared.lock
    assert "--hash=sha256:" in prepared.lock


def test_another_build_backend(job: Job) -> None:
    trainer = job.project(
        task="print('built by hatchling')",
        pyproject__toml='[build-system]\nrequires = ["hatchling"]\nbuild-backend = '
        '"hatchling.build"\n'
        '[project]\nname = "demo"\nversion = "1"\n[tool.hatch.build.targets.wheel]\npackages '
        '= ["trainer"]\n',
    )
    assert job.run(job.prepare(trainer)) == "built by hatchling\n"


def test_setup_requires(job: Job) -> None:
    trainer = job.project(
        task="print('ok')",
        setup__py="from setuptools import setup\n"
        "setup(name='demo', version='1', packages=['trainer'], setup_requires=['six'])",
    )
    assert job.run(job.prepare(trainer)) == "ok\n"


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ("raise RuntimeError('the flux is low')", b"the flux is low"),
        ("import sys; print('said before the end'); sys.exit('not today')", b"said before the end"),
        ("this is no Python", b"SyntaxError"),
        (
            "import os; open(os.path.abspath('README'))",
            b"No such file or directory: 'trainer-1.0/README'",
        ),
    ],
)
def test_a_build_that_fails(job: Job, setup: str, words: bytes) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        job.prepare(job.project(task="", setup__py=setup))
    assert caught.value.reason == "EnvironmentFailed"
    assert words in job.log
    for place in (environment_home(), Path(cloud_ml.__file__).parent):
        assert str(place) not in job.log.decode() + caught.value.message


def test_requirements_that_exclude_each_other(job: Job) -> None:
    with pytest.raises(EnvironmentFailed, match=r"six==1\.16\.0 and six==1\.17\.0"):
        job.prepare(job.project(task="", requirements__txt="six==1.16.0\nsix==1.17.0\n"))
    assert b"six" in job.log


def test_a_dependency_without_wheels_is_built_by_the_tenant(job: Job) -> None:
    trainer = job.project(
        task="import docopt; print(docopt.__version__)", requirements__txt="docopt==0.6.2\n"
    )
    prepared = job.prepare(trainer)
    assert job.run(prepared) == "0.6.2\n"
    assert any("/tenants/1/layers/" in bind.source for bind in prepared.binds)


def test_pip_in_the_job_shadows_the_layer(job: Job) -> None:
    trainer = job.project(
        task="import six; print(six.__version__)", requirements__txt="six==1.17.0\n"
    )
    prepared = job.prepare(trainer)
    assert job.run(prepared) == "1.17.0\n"
    job.run(prepared, "install", "--quiet", "six==1.16.0", module="pip")
    assert job.run(prepared) == "1.16.0\n"
    assert job.run(job.prepare(trainer)) == "1.16.0\n"


@pytest.mark.tensorflow
def test_hello_of_the_slides(job: Job, example: Callable[[str], Path]) -> None:
    prepared = job.prepare(example("hello"))
    assert prepared.runtime == "tensorflow 1"
    assert "tf.Session" in prepared.notices[0]
    assert job.run(prepared) == "b'Hello, TensorFlow!'\n42\n"


@pytest.mark.runtimes
@pytest.mark.tensorflow
def test_linear_of_the_slides(job: Job, example: Callable[[str], Path]) -> None:
    prepared = job.prepare(example("linear"), "tensorflow", "1.15")
    output = job.run(prepared, "--max_epochs=10", "--learning_rate=0.01")
    lines = output.splitlines()
    assert lines[:3] == [
        "Use the optimizer: sgd",
        "Save tensorboard files into: ./tensorboard/",
        "Run training with epoch number: 10",
    ]
    assert sum(line.startswith("Epoch: ") for line in lines) == 10
    w, b = (
        float(part.split(": ")[1]) for part in lines[-3].removeprefix("Get the model, ").split(", ")
    )
    assert (w, b) == (pytest.approx(2, abs=0.1), pytest.approx(10, abs=0.1))
    assert lines[-2:] == ["Exporting trained model to ./model/", "Done exporting!"]
    check = (
        "import tensorflow as tf, json, sys\n"
        "f = tf.saved_model.load('model/00000001').signatures['serving_default']\n"
        "o = f(keys=tf.constant([[1], [2]], tf.int32), X=tf.constant([[10.0], [30.0]], "
        "tf.float32))\n"
        "print(json.dumps({k: v.numpy().tolist() for k, v in o.items()}))\n"
    )
    modern = job.prepare(None, "tensorflow", "2")
    done = python(
        modern.python, {**modern.environment, "HOME": str(job.work)}, "-c", check, folder=job.work
    )
    assert done.returncode == 0, done.stderr
    import json

    answer = json.loads(done.stdout)
    assert answer["keys"] == [[1], [2]]
    assert answer["predict"] == [[pytest.approx(30, abs=2)], [pytest.approx(70, abs=4)]]
    assert list((job.work / "tensorboard").glob("events.out.tfevents.*"))


OPTIMIZERS = ("adadelta", "adagrad", "adam", "ftrl", "rmsprop")
EACH = """
import os, runpy, sys
import tensorflow  # once for all of them: it takes the seconds
for name in sys.argv[1:]:
    if os.fork() == 0:
        sys.argv[1:] = ["--optimizer=" + name, "--max_epochs=1", "--samples=10", "--model_path=./" + name]
        runpy.run_module("trainer.task", run_name="__main__", alter_sys=True)
        sys.exit("it did not end by itself")
    if (ended := os.wait()[1]):
        sys.exit(f"{name} ended with {ended}")
"""


@pytest.mark.runtimes
@pytest.mark.tensorflow
def test_optimizers_of_linear(job: Job, example: Callable[[str], Path]) -> None:
    prepared = job.prepare(example("linear"))
    environment = {**prepared.environment, "HOME": str(job.work)}
    done = python(prepared.python, environment, "-c", EACH, *OPTIMIZERS, folder=job.work)
    assert done.returncode == 0, done.stdout + done.stderr
    used = [
        line for line in done.stdout.splitlines() if line.startswith(("Use the optimizer", "Done"))
    ]
    assert used == [
        line for name in OPTIMIZERS for line in (f"Use the optimizer: {name}", "Done exporting!")
    ]


@pytest.mark.runtimes
@pytest.mark.tensorflow
def test_digits(job: Job, example: Callable[[str], Path]) -> None:
    prepared = job.prepare(example("digits"))
    assert prepared.runtime == "tensorflow 2.21"
    output = job.run(prepared, "--epochs=8")
    accuracy = float(output.split("accuracy: ")[-1].split()[0])
    assert accuracy > 0.9
    assert (job.work / "model" / "1" / "saved_model.pb").exists()


@pytest.mark.tensorflow
def test_old_names_and_contrib(job: Job) -> None:
    trainer = job.project(task=(Path(__file__).parent / "tensorflow1_names.py").read_text())
    assert job.run(job.prepare(trainer, "tensorflow", "1")).splitlines()[-1] == "all names work"


@pytest.mark.tensorflow
def test_compatibility_costs_nothing_until_tensorflow_is_imported(job: Job) -> None:
    task = (
        "import sys; assert not [name for name in sys.modules if name.startswith('tensorflow')]\n"
        "print(len([name for name in sys.modules if name.startswith('cloud_ml')]))\n"
    )
    assert job.run(job.prepare(job.project(task=task), "tensorflow", "1")) == "1\n"
