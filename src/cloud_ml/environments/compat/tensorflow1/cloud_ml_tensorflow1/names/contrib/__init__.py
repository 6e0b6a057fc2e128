"""The parts of ``tensorflow.contrib`` that old trainers use most."""

import importlib

from cloud_ml_tensorflow1.names.absent import sentence

_PARTS = frozenset({"layers", "metrics", "rnn", "session_bundle"})


def __getattr__(name):
    if name in _PARTS:
        return importlib.import_module(f"tensorflow.contrib.{name}")
    raise AttributeError(sentence(f"tf.contrib.{name}"))
