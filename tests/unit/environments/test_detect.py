from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.packages.requirements import parse_all
from cloud_ml.environments.trainers import detect

CATALOG = Catalog.load()


def verdict(folder: Path, code: str, *requirements: str) -> detect.Verdict:
    (folder / "task.py").write_text(code)
    return detect.decide(detect.read(folder), parse_all(requirements), CATALOG)


@pytest.mark.parametrize(
    "code",
    [
        "import tensorflow as tf\nwith tf.Session() as sess: pass",
        "import tensorflow as tf\nx = tf.placeholder(tf.float32)",
        "import tensorflow\ntensorflow.app.run()",
        "import tensorflow as tf\ntf.app.flags.DEFINE_string('a', 'b', 'c')",
        "import tensorflow as tf\nopt = tf.train.AdamOptimizer(0.1)",
        "import tensorflow as tf\nfrom tensorflow.contrib import layers",
        "import tensorflow.contrib.slim as slim",
        "import tensorflow as tf\nr = tf.contrib.layers.l2_regularizer(0.1)",
        "import tensorflow as tf\nserver = tf.train.Server({})",
        "import tensorflow as tf\nx = tf.keras.layers.Dense(1)\nsess = tf.Session()",
        "import tensorflow as tf\nprint tf.Session()",
    ],
)
def test_tensorflow_1(tmp_path: Path, code: str) -> None:
    found = verdict(tmp_path, code)
    assert (found.framework, found.version) == ("tensorflow", "1")
    assert "task.py:" in found.notices[0]


@pytest.mark.parametrize(
    "code",
    [
        "import tensorflow as tf\nprint(tf.constant(1))",
        "from tensorflow import keras\nkeras.Sequential()",
        "import tensorflow.compat.v1 as tf\ntf.Session()",
        "from tensorflow.compat import v1 as tf\ntf.Session()",
        "import tensorflow as tf\ntf.compat.v1.Session()",
        "import tensorflow as tf\ntf.losses.MeanSquaredError()",
        "import tensorflow as tf\ntf.train.Checkpoint()",
        "import tensorflow as tf\n'tf.Session in a text'\n# tf.Session()",
    ],
)
def test_tensorflow_2(tmp_path: Path, code: str) -> None:
    assert verdict(tmp_path, code) == detect.Verdict("tensorflow")


def test_both_is_taken_as_2_and_said(tmp_path: Path) -> None:
    found = verdict(
        tmp_path,
        "import tensorflow as tf\nif old:\n    tf.Session()\nwith tf.GradientTape() as tape: pass",
    )
    assert (found.framework, found.version) == ("tensorflow", None)
    assert "tf.Session" in found.notices[0]
    assert "GradientTape" in found.notices[0]


@pytest.mark.parametrize(
    "code", ["print('hi')", "from . import torch", "import numpy as tf\ntf.Session()"]
)
def test_plain(tmp_path: Path, code: str) -> None:
    assert verdict(tmp_path, code) == detect.Verdict("python")


def test_requirements_alone_decide_too(tmp_path: Path) -> None:
    assert verdict(tmp_path, "", "tensorflow>=1.0").version is None
    assert verdict(tmp_path, "", "tensorflow>=1.0").framework == "tensorflow"
    assert verdict(tmp_path, "", "tensorflow==1.4.0").version == "1"
    assert verdict(tmp_path, "", "tensorflow-gpu<2").version == "1"
    assert verdict(tmp_path, "", "tensorflow==2.15.0").version is None
    assert verdict(tmp_path, "", "keras==2.0.6").version is None


@pytest.mark.parametrize(
    ("code", "framework", "version"),
    [
        ("import keras", "keras", None),
        ("import keras\nimport jax.numpy as jnp", "keras", "3-jax"),
        ("import torch, keras", "keras", "3-torch"),
        ("import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras", "keras", "3-torch"),
        ("os.environ.setdefault('KERAS_BACKEND', 'tensorflow')\nimport keras", "keras", None),
        ("import keras\nimport tensorflow as tf", "tensorflow", None),
        ("import torch.nn as nn", "pytorch", None),
        ("def main():\n    from torch import nn", "pytorch", None),
        ("import torch\nfrom sklearn.datasets import load_digits", "pytorch", None),
        ("from sklearn import svm", "scikit-learn", None),
        ("import xgboost as xgb\nimport sklearn", "xgboost", None),
        ("import lightgbm\nfrom sklearn import svm", "lightgbm", None),
        ("import jax", "jax", None),
        ("import paddle.nn", "paddlepaddle", None),
        ("import torch\nprint 'Python 2'", "pytorch", None),
    ],
)
def test_other_frameworks(tmp_path: Path, code: str, framework: str, version: str | None) -> None:
    found = verdict(tmp_path, code)
    assert (found.framework, found.version) == (framework, version)


@pytest.mark.parametrize(
    ("requirement", "framework"),
    [
        ("torch>=2", "pytorch"),
        ("Scikit_Learn", "scikit-learn"),
        ("paddlepaddle-gpu", "paddlepaddle"),
        ("numpy", "python"),
    ],
)
def test_a_requirement_tells_the_framework_of_code_that_does_not(
    tmp_path: Path, requirement: str, framework: str
) -> None:
    assert verdict(tmp_path, "import sys", requirement).framework == framework


def test_an_operators_runtime_is_found_by_its_imports(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nversion = "7"\nimports = ["ours"]\nrank = 1000\n'
    )
    (tmp_path / "task.py").write_text("import ours, tensorflow")
    assert detect.decide(detect.read(tmp_path), [], Catalog.load(tmp_path)) == detect.Verdict(
        "mine", "7"
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\nprint 'loss', 1", "print statement in task.py:2"),
        ("for i in xrange(3): pass", "xrange in task.py:1"),
        ("isinstance(a, basestring)", "basestring in task.py:1"),
        ("try:\n    f()\nexcept ValueError, e:\n    pass", '"except Error, name" in task.py:3'),
        ("raise ValueError, 'x'", '"raise Error, text" in task.py:1'),
        ("exec 'x = 1'", "exec statement in task.py:1"),
        ("a = `b`", "backquotes in task.py:1"),
        ("if a <> b: pass", "operator <> in task.py:1"),
        ("os.chmod(p, 0755)", "octal number without 0o in task.py:1"),
        ("n = 10L", "number with L in task.py:1"),
        ("d.iteritems()", "iteritems and its like in task.py:1"),
        ("import urllib2", "import of urllib2 in task.py:1"),
    ],
)
def test_python_2_is_named_with_file_and_line(tmp_path: Path, code: str, found: str) -> None:
    (tmp_path / "task.py").write_text(code)
    assert found in detect.read(tmp_path).python_2


@pytest.mark.parametrize(
    "code",
    [
        "print('xrange(3)')  # print x, 0755, `a`, <>",
        "from six.moves import xrange\nfor i in xrange(3): pass",
        "try:\n    xrange\nexcept NameError:\n    xrange = range",
        "try:\n    import urllib2\nexcept ImportError:\n    import urllib.request as urllib2",
        "six.iteritems(d)",
        "x = [0, 00, 0.0755, 10.5, 0o755, 0xFF, 1e5]",
        "self.xrange(1)\nprint(x) if y else print(z)\nprint\nprint = log",
        '"""\nprint x\n"""',
    ],
)
def test_python_3_is_not_taken_for_python_2(tmp_path: Path, code: str) -> None:
    (tmp_path / "task.py").write_text(code)
    assert detect.read(tmp_path).python_2 == ()


def test_absent_parts_of_tensorflow_1_are_named_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(
        "import tensorflow as tf\nimport tensorflow.contrib.slim as slim\nif old:\n"
        "    from tensorflow.contrib.slim import nets\n    tf.estimator.Estimator()\n"
        "tf.contrib.layers.l2_regularizer(1)\n"
    )
    found = detect.read(tmp_path)
    assert found.absent == (
        "tf.contrib.slim in task.py:2",
        "tf.contrib.slim in task.py:4",
        "tf.estimator in task.py:5",
    )
    assert found.blocking == ("tf.contrib.slim in task.py:2",)


def test_tutorials_with_handwritten_digits_are_tensorflow_1(tmp_path: Path) -> None:
    found = verdict(
        tmp_path,
        "import tensorflow as tf\nfrom tensorflow.examples.tutorials.mnist import input_data",
    )
    assert (found.framework, found.version) == ("tensorflow", "1")


@pytest.mark.parametrize(
    ("code", "has_it"),
    [
        ('parser.add_argument("--output_path", default=".")', True),
        ("parser.add_argument(\n    '--output_path',\n)", True),
        ("tf.app.flags.DEFINE_string('output_path', './', 'results')", True),
        ('flags.DEFINE_string(\n    "output_path", None, "results")', True),
        ('@click.option("--output_path")', True),
        ('# parser.add_argument("--output_path")', False),
        ('parser.add_argument("--output_path_of")', False),
        ('path = "output_path"', False),
        ("", False),
    ],
)
def test_a_flag_for_the_output_path(tmp_path: Path, code: str, has_it: bool) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text(code)
    (tmp_path / "trainer" / "other.py").touch()
    found = detect.read(tmp_path)
    assert found.takes_output_path("trainer.task") is has_it
    assert not found.takes_output_path(
        "trainer.other"
    )  # another script of the folder has the flag, not this one
    assert not found.takes_output_path("task.trainer")
    assert not found.takes_output_path(None)


def test_the_flag_of_a_package_that_is_run(tmp_path: Path) -> None:
    (tmp_path / "src" / "trainer").mkdir(parents=True)
    (tmp_path / "src" / "trainer" / "__main__.py").write_text(
        'parser.add_argument("--output_path")'
    )
    assert detect.read(tmp_path).takes_output_path("trainer")


def test_hostile_code_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("(" * 100_000)
    (tmp_path / "null.py").write_bytes(b"\0import tensorflow")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "huge.py").write_text("import tensorflow\n" + "#" * 1024 * 1024)
    (tmp_path / "link.py").symlink_to("/etc/hostname")
    assert detect.decide(detect.read(tmp_path), [], CATALOG).framework == "python"
