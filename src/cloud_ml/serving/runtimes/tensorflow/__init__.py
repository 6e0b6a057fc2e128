"""TensorFlow's SavedModel: run by TensorFlow, or by onnxruntime where that gives the same
answers faster.
"""

import logging
from pathlib import Path

from cloud_ml.serving.runtimes.base import LoadOptions, Model

log = logging.getLogger(__name__)


class SavedModelRuntime:
    """``saved_model.pb`` in the folder of a version.

    TensorFlow is imported only where a model needs it: a converted model is served by a process a
    tenth of the size.
    """

    name = "tensorflow"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / "saved_model.pb").is_file()

    def load(self, folder: Path, options: LoadOptions) -> Model:
        if options.tensorflow_engine != "tensorflow":
            from cloud_ml.serving.runtimes.tensorflow import converted  # noqa: PLC0415

            made, why = converted.load(folder, options)
            if made is not None:
                log.info("%s: %s", folder, why)
                return made
            log.info("%s: TensorFlow runs it: %s", folder, why)
        from cloud_ml.serving.runtimes.tensorflow import savedmodel  # noqa: PLC0415

        return savedmodel.load(folder)
