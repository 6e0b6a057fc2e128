"""Has fsspec know ``fds://`` as soon as it is imported in a job.

The line in ``cloud_ml_fsspec.pth`` puts a finder first. It asks here when somebody imports fsspec.

Standard library only, and the syntax of Python 3.6, since any runtime may import it.
"""

import contextlib
import sys

_CLASS = "cloud_ml_fsspec.MountedFileSystem"
_FINDER = "CloudMlFsspecFinder"


def find_spec():
    """The module ``fsspec`` as others find it, with one more file system; ``None`` without it."""
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == _FINDER or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec("fsspec", None)
        if spec is not None:
            _register_after_import(spec.loader)
            return spec
    return None


def _register_after_import(loader):
    run = getattr(loader, "exec_module", None)

    def run_and_register(module):
        run(module)
        # The SDK's file system has the same scheme, and would need an access key.
        known = getattr(sys.modules.get("fsspec.registry"), "known_implementations", {})
        known["fds"] = {"class": _CLASS}

    if run is not None:  # a folder named fsspec has a loader that runs nothing
        with contextlib.suppress(AttributeError):  # a loader may take no attributes
            loader.exec_module = run_and_register
