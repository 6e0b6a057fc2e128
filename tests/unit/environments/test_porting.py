"""What cannot work is said before the run, or the run is refused where it is certain."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from cloud_ml import environments
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.trainers import porting, tensorflow1
from cloud_ml.environments.trainers.detect import Findings
from cloud_ml.usecases.jobs.admission import NOT_OFFERED

COMPAT = Path(environments.__file__).parent / "compat/tensorflow1/cloud_ml_tensorflow1/names"


def test_notices_name_places_and_the_way_out() -> None:
    found = Findings(
        python_2=tuple(f"xrange in task.py:{line}" for line in range(5)),
        absent=(
            "tf.contrib.slim in task.py:3",
            "tf.contrib.slim in nets.py:9",
            "tf.contrib.gan in task.py:1",
        ),
    )
    assert list(porting.notices(found)) == [
        "xrange in task.py:0, xrange in task.py:1, xrange in task.py:2 and 2 more: this is Python "
        "2 code; convert it to Python 3, for example with 2to3",
        "tf.contrib.slim in task.py:3, nets.py:9 is not offered: "
        "use tf.layers (tf.layers.conv2d, tf.layers.dense) instead",
        "tf.contrib.gan in task.py:1 is not offered: port it to TensorFlow 2: "
        "https://www.tensorflow.org/guide/migrate",
    ]
    assert list(porting.notices(Findings())) == []


@pytest.mark.parametrize("module", ["trainer.task", "trainer"])
def test_a_module_that_begins_by_importing_it_is_refused(module: str) -> None:
    file = "trainer/task.py" if module == "trainer.task" else "trainer/__main__.py"
    found = Findings(blocking=("tf.contrib.slim in other.py:1", f"tf.estimator in {file}:3"))
    with pytest.raises(EnvironmentFailed) as refused:
        porting.check(found, module)
    assert refused.value.reason == "TrainerInvalid"
    assert refused.value.message.startswith(
        f"{file}:3 imports tf.estimator, which is not offered: write"
    )


def test_an_import_in_another_file_may_never_happen() -> None:
    porting.check(Findings(blocking=("tf.contrib.slim in trainer/other.py:1",)), "trainer.task")
    porting.check(Findings(blocking=("tf.contrib.slim in task.py:1",)), None)


@pytest.fixture
def absent() -> ModuleType:
    """The module that jobs have."""
    spec = importlib.util.spec_from_file_location("absent", COMPAT / "absent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_job_says_the_same_as_the_check_before_it(absent: ModuleType) -> None:
    tree = ast.parse((COMPAT / "contrib/__init__.py").read_text())
    parts = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_PARTS"
    )
    assert frozenset(re.findall(r"'(\w+)'", ast.unparse(parts))) == tensorflow1.CONTRIB
    assert tensorflow1.ADVICE == absent.ADVICE
    assert "tf.layers" in absent.sentence("tensorflow.contrib.slim.nets")
    assert "tf.Session" in absent.sentence("tf.estimator")
    assert absent.sentence("tf.contrib.gan").endswith(tensorflow1.ANY)


def test_no_advice_names_what_the_server_refuses() -> None:
    sources = " ".join(file.read_text() for file in COMPAT.rglob("*.py"))
    assert [name for name in NOT_OFFERED if name in sources] == []
