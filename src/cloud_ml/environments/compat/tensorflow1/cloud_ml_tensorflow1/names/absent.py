"""What the compatibility mode does not have, said in one sentence that helps."""

_LOOP = "write the training loop with tf.Session, or use tf.keras"
ADVICE = {
    "contrib.estimator": _LOOP,
    "contrib.learn": _LOOP,
    "contrib.slim": "use tf.layers (tf.layers.conv2d, tf.layers.dense) instead",
    "estimator": _LOOP,
    "feature_column": "prepare the columns with numpy or pandas",
}
"""What to write instead of a part of TensorFlow 1, by its name below ``tf``."""
_ANY = "port it to TensorFlow 2: https://www.tensorflow.org/guide/migrate"


def sentence(part):
    """Why ``part`` (``tf.contrib.slim`` or ``tensorflow.contrib.slim.nets``) is not there, and
    what to do.
    """
    return f"{part} is not part of the compatibility mode for TensorFlow 1: {advice(part.partition('.')[2])}"


def advice(name):
    """What to do without ``name``, given below ``tf``."""
    steps = name.split(".")
    return ADVICE.get(".".join(steps[:2])) or ADVICE.get(steps[0]) or _ANY


class Absent:
    """The last finder: a module below one of ``packages`` that nobody has found is not there,
    and why.
    """

    def __init__(self, *packages):
        self._packages = packages

    def find_spec(self, name, path=None, target=None):
        if name in self._packages or name.startswith(
            tuple(package + "." for package in self._packages)
        ):
            raise ImportError(sentence(name), name=name)
