"""The names of TensorFlow 1, put over those of the real module."""

import importlib
import sys
from pathlib import Path

from cloud_ml_tensorflow1.names import ancient
from cloud_ml_tensorflow1.names.absent import Absent, sentence

GONE = frozenset({"estimator", "feature_column"})


def apply(tensorflow):
    """Make ``tensorflow`` look like its first version. The module object stays the real one."""
    v1 = importlib.import_module("tensorflow.compat.v1")
    deprecation = importlib.import_module("tensorflow.python.util.deprecation")
    deprecation._PRINT_DEPRECATION_WARNINGS = (
        False  # all of this is deprecated; nobody here asked for news
    )
    v1.disable_v2_behavior()
    v1.get_logger().propagate = False  # absl would print every line a second time
    for name in dir(v1):
        if not name.startswith("_") and name != "compat":
            setattr(tensorflow, name, getattr(v1, name))
    ancient.apply(tensorflow)
    tensorflow.__path__.append(str(Path(__file__).parent))  # where the package ``contrib`` is found
    sys.meta_path.append(Absent("tensorflow.contrib", "tensorflow.estimator"))
    tensorflow.contrib = importlib.import_module("tensorflow.contrib")

    def missing(name):
        if name in GONE:
            raise AttributeError(sentence(f"tf.{name}"))
        raise AttributeError(f"module 'tensorflow' has no attribute {name!r}")

    tensorflow.__getattr__ = missing
