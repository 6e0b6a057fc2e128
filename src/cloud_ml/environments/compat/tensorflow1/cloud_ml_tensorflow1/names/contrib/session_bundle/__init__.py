"""``tf.contrib.session_bundle``: how models were exported before SavedModel."""

import importlib

from cloud_ml_tensorflow1.names.absent import sentence


def __getattr__(name):
    if name == "exporter":
        return importlib.import_module("tensorflow.contrib.session_bundle.exporter")
    raise AttributeError(sentence(f"tf.contrib.session_bundle.{name}"))
