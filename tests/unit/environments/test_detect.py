from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.environments import detect
from cloud_ml.environments.requirements import parse_all


def verdict(folder: Path, code: str, *requirements: str) -> detect.Verdict:
    (folder / "task.py").write_text(code)
    return detect.decide(detect.read(folder), parse_all(requirements))


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
        "import keras",
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
        tmp_path, "import tensorflow as tf\nif old:\n    tf.Session()\nwith tf.GradientTape() as tape: pass"
    )
    assert (found.framework, found.version) == ("tensorflow", None)
    assert "tf.Session" in found.notices[0]
    assert "GradientTape" in found.notices[0]


@pytest.mark.parametrize("code", ["print('hi')", "import torch", "import numpy as tf\ntf.Session()"])
def test_plain(tmp_path: Path, code: str) -> None:
    assert verdict(tmp_path, code) == detect.Verdict("python")


def test_requirements_alone_decide_too(tmp_path: Path) -> None:
    assert verdict(tmp_path, "", "tensorflow>=1.0").version is None
    assert verdict(tmp_path, "", "tensorflow>=1.0").framework == "tensorflow"
    assert verdict(tmp_path, "", "tensorflow==1.4.0").version == "1"
    assert verdict(tmp_path, "", "tensorflow-gpu<2").version == "1"
    assert verdict(tmp_path, "", "tensorflow==2.15.0").version is None
    assert verdict(tmp_path, "", "keras==2.0.6").version is None


def test_python_2_source_is_read_as_text_and_said(tmp_path: Path) -> None:
    found = verdict(tmp_path, "import tensorflow as tf\nprint 'loss', tf.Session()\n")
    assert any("Python 2" in notice for notice in found.notices)


def test_hostile_code_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("(" * 100_000)
    (tmp_path / "null.py").write_bytes(b"\0import tensorflow")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "huge.py").write_text("import tensorflow\n" + "#" * 1024 * 1024)
    (tmp_path / "link.py").symlink_to("/etc/hostname")
    assert detect.decide(detect.read(tmp_path), []).framework == "python"
