"""TensorFlow's export before SavedModel, the session bundle: made a SavedModel in a process of
its own, and kept.
"""

import importlib.util
import logging
from pathlib import Path

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import LoadOptions, Model
from cloud_ml.serving.runtimes.tensorflow import SavedModelRuntime, children
from cloud_ml.serving.runtimes.tensorflow.unbundle import META_GRAPH, SAVED_MODEL

log = logging.getLogger(__name__)

_PROGRAM = "cloud_ml.serving.runtimes.tensorflow.unbundle"


class SessionBundleRuntime:
    """``export.meta`` and a checkpoint in the folder of a version, as ``tf.contrib.session_bundle``
    wrote them.

    What comes out is a SavedModel and served as one, so onnxruntime may run it. Where the folder
    holds a SavedModel as well, that is served.
    """

    name = "tensorflow-session-bundle"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / META_GRAPH).is_file()

    def load(self, folder: Path, options: LoadOptions) -> Model:
        kept = options.cache / f"bundle-{children.digest(folder, ['tensorflow', 'tensorflow-cpu'])}"
        result = children.result(kept)
        if result is None:
            if importlib.util.find_spec("tensorflow") is None:
                raise ModelFailed(
                    "session bundles of TensorFlow 1 need tensorflow, which is not installed"
                )
            result = children.run(_PROGRAM, folder, kept, options.convert_s)
            log.info("%s: a session bundle: %s", folder, result["why"])
        if not result["fit"]:
            raise ModelFailed(f"the session bundle cannot be made a SavedModel: {result['why']}")
        return SavedModelRuntime().load(kept / SAVED_MODEL, options)
