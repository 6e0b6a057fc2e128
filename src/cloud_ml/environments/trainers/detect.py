"""Which framework a trainer is written for, read from its code without running it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.environments.packages.requirements import Requirement, normalise_name
from cloud_ml.environments.packages.versions import release, satisfies
from cloud_ml.environments.trainers import source_files, source_scan, tensorflow1

if TYPE_CHECKING:  # who reads sources inside a sandbox does without
    from cloud_ml.environments.catalog import Catalog
    from cloud_ml.environments.runtime import Runtime

_FILES, _FILE_BYTES, _ALL_BYTES = 500, 1024 * 1024, 16 * 1024 * 1024
_CLASSIC = re.compile(
    r"(?:Session|InteractiveSession|placeholder(?:_with_default)?|get_variable|variable_scope|global_variables_initializer"
    r"|initialize_all_variables|trainable_variables|get_default_graph|reset_default_graph|assign_add|mul|sub|neg"
    r"|random_uniform|random_normal|truncated_normal|set_random_seed|ConfigProto|GPUOptions|FixedLengthRecordReader"
    r"|examples\.tutorials(?:\..+)?|app\.(?:run|flags(?:\..+)?)|flags\..+|contrib(?:\..+)?|logging\..+|gfile\..+|layers\..+|losses\.(?:\w*softmax\w*|sigmoid_cross_entropy|get_total_loss|add_loss)"
    r"|train\.(?:\w*Optimizer|Saver|Supervisor|MonitoredTrainingSession|MonitoredSession|SessionManager|Server"
    r"|replica_device_setter|get_or_create_global_step|get_global_step|global_step|exponential_decay|SyncReplicasOptimizer"
    r"|start_queue_runners|batch|shuffle_batch|string_input_producer|import_meta_graph|export_meta_graph"
    r"|SummaryWriter)"
    r"|summary\.(?:FileWriter|merge|merge_all|scalar_summary)|nn\.(?:rnn_cell(?:\..+)?|dynamic_rnn|static_rnn))"
)
_MODERN = re.compile(
    r"(?:GradientTape|function|Module|config\..+|distribute\..+|random\.(?:set_seed|Generator(?:\..+)?)"
    r"|summary\.create_file_writer|optimizers\..+|saved_model\.(?:save|load)|data\.AUTOTUNE|compat(?:\..+)?)"
)
_KERAS_BACKEND = re.compile(rb"""KERAS_BACKEND["'] {0,8}\]? {0,8}[=,] {0,8}["'](jax|torch)["']""")
_KERAS_BACKENDS = ("jax", "torch", "tensorflow")
_OUTPUT_PATH = re.compile(
    rb"""^[^\n#]*["']--output_path["']|^[^\n#]*\bDEFINE_\w{1,40}\(\s{0,80}["']output_path["']""",
    re.MULTILINE,
)
_PACKAGES, _SHOWN = 1000, 20


@dataclass(frozen=True)
class Findings:
    """What the code of a trainer says.

    ``packages`` are the top-level modules it imports, and the backend of Keras that it names.
    ``classic`` and ``modern`` are names of TensorFlow that exist only in its first or its second
    version, each with where it was met (``task.py:12``). ``python_2`` is what the code uses of
    Python 2, ``absent`` are names of TensorFlow 1 that today's TensorFlow does not have,
    ``blocking`` those of them whose import nothing guards. ``output_path_files`` are files that
    define a flag ``--output_path``.
    """

    packages: tuple[str, ...] = ()
    classic: tuple[str, ...] = ()
    modern: tuple[str, ...] = ()
    python_2: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    blocking: tuple[str, ...] = ()
    output_path_files: tuple[str, ...] = ()

    def takes_output_path(self, module: str | None) -> bool:
        """Whether the file of a module defines a flag ``--output_path``."""
        path = (module or "").replace(".", "/")
        return any(
            f"/{file}".endswith((f"/{path}.py", f"/{path}/__main__.py"))
            for file in self.output_path_files
        )


@dataclass(frozen=True)
class Verdict:
    """The framework to use, its version, and sentences for the log."""

    framework: str
    version: str | None = None
    notices: tuple[str, ...] = field(default_factory=tuple)


def decide(
    findings: Findings,
    requirements: Iterable[Requirement],
    catalog: Catalog,
    keras_backend: str = "",
) -> Verdict:
    """Choose the framework from the code's findings and the trainer's requirements.

    ``keras_backend`` is the job's variable of that name, which Keras prefers to anything that code
    says.
    """
    needed = list(requirements)
    if keras_backend and "keras" in findings.packages:
        return Verdict("keras", keras_backend_version(keras_backend))
    runtime = _of_highest_rank(findings, {one.name for one in needed}, catalog)
    if runtime is None:
        return Verdict("python")
    if runtime.name != "tensorflow":
        return Verdict(runtime.name, None if runtime.default else runtime.version)
    return _of_tensorflow(findings, needed)


def keras_backend_version(backend: str) -> str | None:
    """The version of the runtime that brings a backend of Keras; ``None`` for the default's."""
    return f"3-{backend}" if backend in _KERAS_BACKENDS else None


def _of_highest_rank(findings: Findings, required: set[str], catalog: Catalog) -> Runtime | None:
    """The runtime that the code's imports or its requirements tell."""
    imported = set(findings.packages)
    candidates = [
        one
        for one in catalog.runtimes
        if any(set(each.split("+")) <= imported for each in one.imports)
        or required & set(map(normalise_name, one.distributions))
    ]
    return max(candidates, key=lambda one: (one.rank, one.default), default=None)


def _of_tensorflow(findings: Findings, needed: Iterable[Requirement]) -> Verdict:
    """Its first version or its second."""
    old_pin = next(
        (one for one in needed if one.name.startswith("tensorflow") and _is_classic(one.specifier)),
        None,
    )
    if findings.classic and not findings.modern:
        notice = f"TensorFlow 1 code ({findings.classic[0]}): it runs in compatibility mode"
        return Verdict("tensorflow", "1", (notice,))
    if old_pin and not findings.modern:
        return Verdict(
            "tensorflow", "1", (f"{old_pin.text} is required: it runs in compatibility mode",)
        )
    if findings.classic:
        notice = (
            f"the code uses names of TensorFlow 1 ({findings.classic[0]}) and of TensorFlow 2 "
            f"({findings.modern[0]}): "
            "taken as TensorFlow 2; choose framework version 1 if this is wrong"
        )
        return Verdict("tensorflow", notices=(notice,))
    return Verdict("tensorflow")


def _is_classic(specifier: str) -> bool:
    """Whether ``specifier`` admits TensorFlow 1 and nothing later."""
    bounded = any(clause.strip()[:1] in "=<~" for clause in specifier.split(",") if clause.strip())
    versions = re.findall(r"\d+(?:\.\d+)*", specifier)
    return (
        bounded
        and bool(versions)
        and not satisfies("2.21.0", specifier)
        and max(map(release, versions)) <= (2, 0)
    )


def read(folder: Path) -> Findings:
    """Read the Python files below ``folder``, in linear time; links are not followed, huge files
    are passed over.
    """
    packages: set[str] = set()
    output_path_files: list[str] = []
    found: dict[str, list[str]] = {
        kind: [] for kind in ("classic", "modern", "python_2", "absent", "blocking")
    }
    for name, text in sources(folder):
        scanned = source_scan.scan(text)
        packages |= scanned.imports
        if _OUTPUT_PATH.search(text):
            output_path_files.append(name)
        packages.update(backend.decode() for backend in _KERAS_BACKEND.findall(text))
        for kind, what, line in _kinds(scanned):
            found[kind].append(f"{what} in {name}:{line}")
        for places in found.values():
            del places[_SHOWN:]
    return Findings(
        tuple(sorted(packages)[:_PACKAGES]),
        output_path_files=tuple(output_path_files),
        **{kind: tuple(places) for kind, places in found.items()},
    )


def _kinds(scanned: source_scan.SourceScan) -> Iterator[tuple[str, str, int]]:
    """What of a source counts as what, with its line."""
    reported: set[tuple[str, int]] = set()
    for used, line in scanned.uses:
        if _MODERN.fullmatch(used):
            yield "modern", f"tf.{used}", line
        elif _CLASSIC.fullmatch(used):
            yield "classic", f"tf.{used}", line
        part = tensorflow1.absent_part(used)
        if part and (part, line) not in reported:
            reported.add((part, line))
            yield "absent", f"tf.{part}", line
    for used, line in scanned.first:
        if part := tensorflow1.absent_part(used):
            yield "blocking", f"tf.{part}", line
    for what, line in scanned.python_2:
        yield "python_2", what, line


def sources(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Names and texts of the Python files below ``folder``; links are not followed, huge files
    are passed over.
    """
    left = _ALL_BYTES
    for name in itertools.islice(source_files.python_files(folder), _FILES):
        with (folder / name).open("rb") as file:
            text = file.read(_FILE_BYTES + 1)
        if len(text) <= _FILE_BYTES and (left := left - len(text)) > 0:
            yield name, text
