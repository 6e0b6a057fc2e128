"""The message of a process that failed: how it ended, its own last words, and what helps."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloud_ml.engines.local.failures import excerpt, files, modules, signals
from cloud_ml.engines.local.failures.excerpt import Excerpt
from cloud_ml.engines.local.failures.files import CodeFolder
from cloud_ml.environments.trainers import python2
from cloud_ml.models.secrets.commands import mask_command

LONGEST = 900
"""Characters of a whole message."""
_PYTHON_2_NAMES = {**python2.NAMES, "file": "open", "long": "int", "reduce": "functools.reduce"}
_NOTEBOOK_NAMES = ("get_ipython", "display")
_OF_NOTEBOOK = "only notebooks have it: remove the line, and install packages with requirements.txt or --install"
_UNDEFINED = re.compile(r"name '(\w{1,100})' is not defined")
_PYTHON_2_ATTRIBUTE = re.compile(
    r"'dict' object has no attribute '(has_key|iteritems|itervalues|iterkeys)'"
)
_PYTHON_2_SYNTAX = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
)
_IS_PYTHON_2 = "this is Python 2 code: convert it to Python 3, for example with 2to3"
_NO_WRITE = ("Read-only file system", "Permission denied")
_WRITABLE = "a job may write to its working directory, to /tmp and to its buckets"
_NAMES_NO_PATH = "[Errno 13] Permission denied"
_LOW_PORT = "ports below 1024 are not for jobs: listen on a higher one"
_NO_KEYBOARD = "a job has no keyboard: take the value from an argument or a variable"
_NOT_RESOLVED = (
    b"Name or service not known",
    b"Temporary failure in name resolution",
    b"No address associated with hostname",
)
_OF_CONNECTION = re.compile(r"Connect|URLError|gaierror|MaxRetry|NameResolution|EntryNotFound")
_UNKNOWN_HOST = (
    "the name of a host cannot be resolved here: check it, or copy the data to a bucket with "
    "cloudml storage cp"
)
_NO_NUMBER = re.compile(r"\b(?:nan|inf|infinite|overflow)\b", re.IGNORECASE)
_NOT_FINITE = "the numbers grew without bound: lower the learning rate, and look for missing values in the data"
_VARIABLE = re.compile(r"'([A-Z][A-Z0-9_]{1,60})'")
_OF_LAUNCHERS = ("SLURM_", "PMI_", "MV2_", "FLUX_")
_OF_OPEN_MPI = ("OMPI_", "PMIX_")
_OF_ARRAYS = frozenset(
    {
        "CLOUDML_ARRAY_INDEX",
        "CLOUDML_ARRAY_COUNT",
        "SLURM_ARRAY_TASK_COUNT",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_MIN",
        "JOB_COMPLETION_INDEX",
    }
)
_OPTIONS = {
    **dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"), "--recipe pytorch"
    ),
    "DASK_SCHEDULER_ADDRESS": "--recipe dask",
    "TF_CONFIG": "-F tensorflow",
}
"""Variables of jobs of several tasks, and what has a job set them."""
_NO_LAUNCHER = (
    "that launcher is not here: in a job of several tasks, CLOUDML_INDEX is the number of the task, "
    "and with --recipe pytorch it finds RANK and WORLD_SIZE"
)
_NOT_SEVERAL = "tasks of a job of several find it: submit it with {option} -w N"
_NO_ARRAY = "tasks of an array find it: submit it with --array INDEXES, such as --array 0-9"
_NO_LIBRARY = "a library of the system is missing: require a package that brings it"
_IN_ANY = (
    ("$CLOUDML_", files.NOT_REPLACED),
    ("${CLOUDML_", files.NOT_REPLACED),
    ("Torch not compiled with CUDA", "no GPU here: choose the device by torch.cuda.is_available()"),
    ("Found no NVIDIA driver", "no GPU here: choose the device by torch.cuda.is_available()"),
    (
        "libGL.so.1: cannot open",
        'use the line "opencv-python-headless" in requirements.txt, not opencv-python',
    ),
    (
        "operator torchvision::nms does not exist",
        "this torchvision was built for another PyTorch: install the build whose version fits, for "
        "processors from https://download.pytorch.org/whl/cpu",
    ),
    (
        "torch.distributed using env:// rendezvous",
        _NOT_SEVERAL.format(option="--recipe pytorch"),
    ),
    ("libcuda", "no GPU here: install the build of the package for processors"),
    ("libcudart", "no GPU here: install the build of the package for processors"),
    ("cannot open shared object file", _NO_LIBRARY),
    (
        "DataLoader worker (pid",
        "shared memory of workers counts to the job's memory: use fewer workers or a larger -M",
    ),
)
_REFUSED_BY_NETWORK = b"No route to host"
_LEADS_OUT = (
    "jobs reach the open internet, and nothing that is private or this server's unless its "
    "administrator opens it (engine.network_allow)"
)
_SHELL_LINE = re.compile(r"(?:/bin/)?(?:sh|bash): (?:line )?(\d{1,6}): ")


@dataclass(frozen=True)
class FailureContext:
    """What is known of a process beside its output.

    ``folders`` hold the user's code, ``working_folder`` is where the process ran, as it sees it.
    ``own_network`` says that its network leads to the open internet only. ``command`` is the shell
    command that it ran, if any.
    """

    folders: Sequence[CodeFolder] = ()
    working_folder: str = ""
    own_network: bool = False
    command: str = ""


def message(
    ending: str,
    tail: bytes,
    context: FailureContext,
    *,
    code: int | None = None,
    killed_by: str = "",
) -> str:
    """The whole message.

    Args:
        ending: How the process ended, such as ``master-0 exited with code 1``.
        tail: The end of its output.
        context: What is known beside it.
        code: Its exit code.
        killed_by: The name of the signal that ended it.
    """
    found = excerpt.read(tail, functools.partial(files.user_file, folders=context.folders))
    meaning = signals.meaning(killed_by) if killed_by else signals.meaning_of_code(code or 0)
    text = f"{ending} ({meaning})" if meaning else ending
    if found.text:
        text = f"{text}: {found.sentence()}"
    hints = [
        hint
        for hint in (
            _hint(found, context),
            _shell_line(found, context),
            _low_port(found, tail),
            _network(found, tail, context),
        )
        if hint
    ]
    return excerpt.cut("; ".join([text, *hints]), LONGEST)


def _hint(found: Excerpt, context: FailureContext) -> str:
    special = _BY_ERROR.get(found.error)
    if special and (hint := special(found, context)):
        return hint
    return next((hint for words, hint in _IN_ANY if words in found.text), "")


def _of_file(found: Excerpt, context: FailureContext) -> str:
    return files.advice(found.detail, context.working_folder, context.folders)


def _of_name(found: Excerpt, _context: FailureContext) -> str:
    match = _UNDEFINED.match(found.detail)
    if match and match[1] in _NOTEBOOK_NAMES:
        return _OF_NOTEBOOK
    replacement = _PYTHON_2_NAMES.get(match[1]) if match else None
    return f"Python 3 has {replacement} instead" if replacement else ""


def _of_attribute(found: Excerpt, _context: FailureContext) -> str:
    return _IS_PYTHON_2 if _PYTHON_2_ATTRIBUTE.match(found.detail) else ""


def _of_syntax(found: Excerpt, _context: FailureContext) -> str:
    return _IS_PYTHON_2 if found.detail.startswith(_PYTHON_2_SYNTAX) else ""


def _of_number(found: Excerpt, _context: FailureContext) -> str:
    return _NOT_FINITE if _NO_NUMBER.search(found.detail) else ""


def _of_key(found: Excerpt, _context: FailureContext) -> str:
    """A variable that the launchers of other platforms set."""
    match = _VARIABLE.fullmatch(found.detail)
    name = match[1] if match else ""
    if name in _OF_ARRAYS:
        return _NO_ARRAY
    if name.startswith(_OF_LAUNCHERS):
        return _NO_LAUNCHER
    option = _OPTIONS.get(name) or ("--recipe mpi" if name.startswith(_OF_OPEN_MPI) else "")
    return _NOT_SEVERAL.format(option=option) if option else ""


def _of_input(found: Excerpt, _context: FailureContext) -> str:
    return _NO_KEYBOARD if found.detail.startswith("EOF when reading a line") else ""


def _of_writing(found: Excerpt, _context: FailureContext) -> str:
    if found.detail == _NAMES_NO_PATH:  # of a port, or of another process
        return ""
    return _WRITABLE if any(words in found.detail for words in _NO_WRITE) else ""


_BY_ERROR: dict[str, Callable[[Excerpt, FailureContext], str]] = {
    "ModuleNotFoundError": lambda found, _context: modules.advice(found.detail),
    "FileNotFoundError": _of_file,
    "NameError": _of_name,
    "KeyError": _of_key,
    "AttributeError": _of_attribute,
    "SyntaxError": _of_syntax,
    "FloatingPointError": _of_number,
    "OSError": _of_writing,
    "PermissionError": _of_writing,
    "EOFError": _of_input,
}


def _shell_line(found: Excerpt, context: FailureContext) -> str:
    """The line of a shell command that the shell complains about, where it has several."""
    match = _SHELL_LINE.match(found.text)
    lines = context.command.splitlines()
    if match is None or not 0 < int(match[1]) <= len(lines) or len(lines) < 2:
        return ""
    return f"line {match[1]} is: {excerpt.cut(mask_command(lines[int(match[1]) - 1].strip()), 120)}"


def _low_port(found: Excerpt, tail: bytes) -> str:
    refused = found.error == "PermissionError" and found.detail == _NAMES_NO_PATH
    return _LOW_PORT if refused and b"bind(" in tail else ""


def _network(found: Excerpt, tail: bytes, context: FailureContext) -> str:
    """What to know about the network, if ``tail`` tells of a connection that it refused, or of a
    host that nobody knows.
    """
    if context.own_network and _REFUSED_BY_NETWORK in tail:
        return _LEADS_OUT
    unknown = any(words in tail for words in _NOT_RESOLVED)
    return _UNKNOWN_HOST if unknown and _OF_CONNECTION.search(found.error) else ""
