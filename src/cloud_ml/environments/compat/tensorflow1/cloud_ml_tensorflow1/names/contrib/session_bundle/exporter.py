"""The exporter of old trainers. What it writes is a SavedModel of today beside the files of then.

``<export_dir>/<version, eight digits>/`` holds ``saved_model.pb`` and ``variables/`` with the
signature ``serving_default``, and the checkpoint ``export`` with ``export.meta``.
"""

import os
import shutil

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

_SERVING = "serving_default"


class _Signature:
    """Names of tensors by the keys they are called with; one side of it may be empty."""

    def __init__(self, method, inputs=None, outputs=None):
        self.method = method
        self.inputs = inputs or {}
        self.outputs = outputs or {}


def generic_signature(name_tensor_map):
    """One side of a prediction: tensors by key."""
    return _Signature(
        "tensorflow/serving/predict", {key: tensor.name for key, tensor in name_tensor_map.items()}
    )


def regression_signature(input_tensor, output_tensor):
    """A regression from one tensor to one."""
    return _Signature(
        "tensorflow/serving/predict", {"inputs": input_tensor.name}, {"outputs": output_tensor.name}
    )


def classification_signature(input_tensor, classes_tensor=None, scores_tensor=None):
    """A classification; classes, scores or both."""
    outputs = {"classes": classes_tensor, "scores": scores_tensor}
    return _Signature(
        "tensorflow/serving/predict",
        {"inputs": input_tensor.name},
        {key: tensor.name for key, tensor in outputs.items() if tensor is not None},
    )


def gfile_copy_callback(files_to_copy, export_dir_path):
    """Copy assets into the export's folder."""
    folder = os.path.join(export_dir_path, "assets")
    tf.gfile.MakeDirs(folder)
    for source, name in files_to_copy.items():
        tf.gfile.Copy(source, os.path.join(folder, name), overwrite=True)


class Exporter:
    """Writes versions of a model that serving can load."""

    def __init__(self, saver):
        self._saver = saver
        self._graph_def = None
        self._signatures = {}
        self._init_op = None
        self._clear_devices = False
        self._assets_callback = None
        self._assets = ()

    def init(
        self,
        graph_def=None,
        init_op=None,
        clear_devices=False,
        default_graph_signature=None,
        named_graph_signatures=None,
        assets_collection=None,
        assets_callback=gfile_copy_callback,
    ):
        """Tell what will be exported; to be called once, before `export`."""
        if self._signatures:
            raise RuntimeError("Exporter is already initialized.")
        self._graph_def = graph_def
        self._init_op = init_op.name if init_op is not None else None
        self._clear_devices = clear_devices
        self._signatures = _definitions(default_graph_signature, dict(named_graph_signatures or {}))
        self._assets = _asset_files(assets_collection or ())
        self._assets_callback = assets_callback

    def export(self, export_dir_base, global_step_tensor, sess=None, exports_to_keep=None):
        """Write one version and return its folder. ``exports_to_keep`` takes all paths and gives
        those to keep.
        """
        if not self._signatures:
            raise RuntimeError("Exporter is not initialized.")
        sess = sess or tf.get_default_session()
        version = (
            global_step_tensor
            if isinstance(global_step_tensor, int)
            else int(sess.run(global_step_tensor))
        )
        target = os.path.join(export_dir_base, f"{version:08d}")
        work = target + "-tmp"
        for folder in (work, target):
            if tf.gfile.Exists(folder):
                tf.gfile.DeleteRecursively(folder)
        tf.gfile.MakeDirs(work)
        self._write_checkpoint(work, sess)
        self._write_saved_model(work)
        if self._assets and self._assets_callback:
            self._assets_callback(self._assets, work)
        tf.gfile.Rename(work, target)
        _drop_others(export_dir_base, target, exports_to_keep)
        return target

    def _write_checkpoint(self, folder, sess):
        """The files of then. Adds nothing to the trainer's graph, which may be finalized."""
        self._saver.save(
            sess, os.path.join(folder, "export"), write_meta_graph=False, write_state=False
        )
        with sess.graph.as_default():
            tf.train.export_meta_graph(
                os.path.join(folder, "export.meta"),
                graph_def=self._graph_def or sess.graph.as_graph_def(),
                saver_def=self._saver.as_saver_def(),
                clear_devices=self._clear_devices,
            )

    def _write_saved_model(self, folder):
        """The files of today, from a graph of their own."""
        parts = os.path.join(folder, "saved_model")
        graph = tf.Graph()
        with graph.as_default(), tf.Session(graph=graph) as sess:
            saver = tf.train.import_meta_graph(
                os.path.join(folder, "export.meta"), clear_devices=True
            )
            saver.restore(sess, os.path.join(folder, "export"))
            builder = tf.saved_model.builder.SavedModelBuilder(parts)
            builder.add_meta_graph_and_variables(
                sess,
                [tf.saved_model.tag_constants.SERVING],
                signature_def_map={
                    name: _definition(graph, one) for name, one in self._signatures.items()
                },
                main_op=self._main_op(graph),
                clear_devices=True,
                saver=saver,
            )
            builder.save()
        for name in tf.gfile.ListDirectory(parts):
            tf.gfile.Rename(
                os.path.join(parts, name.rstrip("/")), os.path.join(folder, name.rstrip("/"))
            )
        shutil.rmtree(parts, ignore_errors=True)

    def _main_op(self, graph):
        steps = [graph.get_operation_by_name(self._init_op)] if self._init_op else []
        if tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS):
            steps.append(tf.tables_initializer())
        return tf.group(*steps) if steps else None


def _definitions(default, named):
    """Signatures by the names serving calls them; ``inputs`` and ``outputs`` were two halves of
    one.
    """
    found = {}
    if "inputs" in named and "outputs" in named:
        halves = named.pop("inputs"), named.pop("outputs")
        found[_SERVING] = _Signature(halves[0].method, halves[0].inputs, halves[1].inputs)
    if default is not None:
        found[_SERVING] = default
    found.update({name: one for name, one in named.items() if one.inputs and one.outputs})
    if _SERVING not in found:
        raise ValueError(
            "an export needs a default signature, or the named ones 'inputs' and 'outputs'"
        )
    return found


def _definition(graph, signature):
    def described(names):
        return {key: _info(graph.get_tensor_by_name(name)) for key, name in names.items()}

    return tf.saved_model.signature_def_utils.build_signature_def(
        described(signature.inputs), described(signature.outputs), signature.method
    )


def _info(tensor):
    return meta_graph_pb2.TensorInfo(
        name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
    )


def _asset_files(tensors):
    """Source to name of the files whose paths the constant ``tensors`` hold."""
    paths = [tf.get_static_value(tensor).item().decode() for tensor in tensors]
    return {path: os.path.basename(path) for path in paths}


def _drop_others(base, target, exports_to_keep):
    """Delete versions that ``exports_to_keep`` does not want; it sees (path, version) pairs."""
    if exports_to_keep is None:
        return
    paths = [
        (os.path.join(base, name.rstrip("/")), int(name.rstrip("/")))
        for name in tf.gfile.ListDirectory(base)
        if name.rstrip("/").isdigit()
    ]
    kept = {path for path, *_ in exports_to_keep(paths)}
    for path, _ in paths:
        if path not in kept and path != target:
            tf.gfile.DeleteRecursively(path)
