"""TensorFlow 1 code on today's TensorFlow: switched on by a ``.pth`` file in a job's environment.

Importing this only sets a trap: when the job imports ``tensorflow``, the real module is loaded as
ever and then gets the names of TensorFlow 1 (``names/``). Nothing is loaded before that.
"""

import sys
from importlib.machinery import PathFinder


class _Trap:
    """Finds ``tensorflow`` where it is, and adds one step after its loading."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_rename(module):
            load(module)
            from cloud_ml_tensorflow1.names import apply  # noqa: PLC0415 -- TensorFlow is there only now

            apply(module)

        spec.loader.exec_module = load_and_rename
        return spec


sys.meta_path.insert(0, _Trap())
