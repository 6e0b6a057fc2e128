"""Parts of TensorFlow 1 that the compatibility mode does not have; ``compat/tensorflow1`` says
the same in a job.
"""

from __future__ import annotations

CONTRIB = frozenset({"layers", "metrics", "rnn", "session_bundle"})
"""Parts of ``tf.contrib`` that the compatibility mode has."""

_LOOP = "write the training loop with tf.Session, or use tf.keras"
ADVICE = {
    "contrib.estimator": _LOOP,
    "contrib.learn": _LOOP,
    "contrib.slim": "use tf.layers (tf.layers.conv2d, tf.layers.dense) instead",
    "estimator": _LOOP,
    "feature_column": "prepare the columns with numpy or pandas",
}
"""What to write instead of a part, by its name below ``tf``."""
ANY = "port it to TensorFlow 2: https://www.tensorflow.org/guide/migrate"


def absent_part(name: str) -> str:
    """The part that ``name`` (below ``tf``) belongs to, such as ``contrib.slim``; empty for one
    that is there.
    """
    steps = name.split(".")
    if steps[0] == "estimator":
        return "estimator"
    if steps[0] != "contrib" or len(steps) < 2 or steps[1] in CONTRIB:
        return ""
    return f"contrib.{steps[1]}"


def advice(part: str) -> str:
    """What to write instead of ``part``, which ``absent_part`` has named."""
    return ADVICE.get(part, ANY)
