"""In tasks of JAX: one that fails ends at once.

When an interpreter ends, JAX's connection to the others waits for them, up to five minutes. After a
failure they do not come: they wait for the failed task. Nobody would learn of the failure meanwhile.
So a program that fails does not close its connection. A good end is left as it is.

Standard library only, and the syntax of Python 3.6, since any runtime may import it.
"""

import ctypes
import runpy
import sys

_run = runpy._run_module_as_main  # type: ignore[attr-defined]


def _run_or_leave(*arguments: object, **named: object) -> object:
    try:
        return _run(*arguments, **named)
    except SystemExit as error:
        if error.code:
            _leave()
        raise
    except BaseException:
        _leave()
        raise


def _leave() -> None:
    """Have JAX forget its connection, which lives on until the process has ended. JAX closes what
    it knows at exit, and so does a destructor.
    """
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    for name in ("preemption_sync_manager", "client", "service"):
        held = getattr(state, name, None)
        if held is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
            setattr(state, name, None)


runpy._run_module_as_main = _run_or_leave  # type: ignore[attr-defined]
