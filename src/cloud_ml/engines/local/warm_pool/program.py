"""What a warm interpreter runs, given to its interpreter as text: imports, waits for its job, and
becomes it.

It is inside the fence, in any version of Python that a runtime asks for, and sees nothing else of
ours. Whatever goes wrong ends it before the job's code has begun, and the job starts the ordinary
way.
"""

import importlib
import json
import os
import runpy
import sys
import types


def _list_loaded() -> "list[str]":
    return sorted({name.partition(".")[0] for name in sys.modules if name != "__main__"})


def _become(job: "dict[str, object]") -> str:
    """Take on everything of the job that an interpreter of its own would have had from the
    start.
    """
    environment, words, sites, folder = (
        job["environment"],
        job["words"],
        job["sites"],
        job["folder"],
    )
    assert isinstance(environment, dict) and isinstance(words, list) and isinstance(sites, list)  # noqa: PT018
    if "PWD" in os.environ:  # which bubblewrap has set
        environment["PWD"] = str(folder)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(str(folder))  # what was mounted there before is out of reach from here on
    own = [number for number, entry in enumerate(sys.path) if entry.startswith(sys.prefix + os.sep)]
    at = own[0] + 1 if own else len(sys.path)
    sys.path[at:at] = sites
    sys.path.insert(0, str(folder))
    # The job's folders were mounted after the import, so finders may remember them as empty or
    # absent.
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    # So it stands while ``python -m`` looks for the module. runpy puts the file's path there.
    sys.argv = ["-m", *words[1:]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [sys.executable, "-m", *words]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__dict__["__builtins__"] = __builtins__
    return str(words[0])


def _wait() -> str:
    control = int(sys.argv[1])
    # Programs that the job starts must not have the line to the supervisor.
    os.set_inheritable(control, False)
    sys.path.pop(0)  # the folder that a command given as text may import from
    for name in sys.argv[2:]:
        importlib.import_module(name)
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(control, json.dumps({"loaded": _list_loaded()}).encode() + b"\n")
    order = b""
    while not order.endswith(b"\n"):
        more = os.read(control, 65536)
        if not more:
            os._exit(0)
        order += more
    module = _become(json.loads(order.decode()))
    os.write(control, b"{}\n")
    os.close(control)
    return module


if __name__ == "__main__":
    runpy._run_module_as_main(_wait())  # type: ignore[attr-defined]  # what python -m does
