"""A TensorBoard in normal form, and the workload that runs for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.spec import Program, Resources, RetryPolicy, Role, WorkloadSpec

MODULE = "cloud_ml.tensorboard"
PACKAGE_URI = "cloudml:tensorboard"
"""Stands for the package that runs TensorBoard where a job has its trainer."""
MEMORY_BYTES = 2 << 30
_CPU_REQUEST_MILLIS = 500
_ENDLESS = 1_000_000_000
_EACH = "*"
"""See ``cloud_ml.tensorboard``."""
MIRROR_SOCKET = "mirror.sock"
"""Where a TensorBoard that copies what it shows is answered: see ``cloud_ml.tensorboard.mirror``."""
MIRROR_BYTES = "CLOUDML_MIRROR_BYTES"
"""The variable with which it copies, and bytes that all copies may have."""


@dataclass(frozen=True)
class RunSource:
    """A folder of a bucket, and the name under which its runs are shown.

    The only folder may have no ``name``. With ``each_child``, each folder in it is a run of its own
    whose name is ``name`` and that of the folder.
    """

    uri: str
    name: str = ""
    each_child: bool = False


@dataclass(frozen=True)
class TensorBoardSpec:
    """What is shown. ``sources`` are the folders behind ``logdir``, ``jobs`` or ``study``.

    ``key`` is a random text in hex with which tickets and cookies of its application are made. It
    is no part of what was asked for.
    """

    logdir: str
    jobs: tuple[str, ...]
    study: str
    workload: WorkloadSpec
    sources: tuple[RunSource, ...] = ()
    key: str = field(default="", repr=False, compare=False)

    def with_workload(self, workload: WorkloadSpec) -> TensorBoardSpec:
        """The same TensorBoard with another workload."""
        return replace(self, workload=workload)

    def with_sources(self, sources: Sequence[RunSource]) -> TensorBoardSpec:
        """The same TensorBoard, once it is known which folders it shows."""
        arguments = [f"--unix_socket={_SOCKET}"]
        for source in sources:
            arguments.append(f"--name={source.name}{_EACH if source.each_child else ''}")
            arguments.append(f"--folder={source.uri}")
        buckets = tuple(dict.fromkeys(bucket_of(source.uri) for source in sources))
        program = replace(self.workload.program, arguments=tuple(arguments))
        workload = replace(self.workload, program=program, reads_only=buckets)
        return replace(self, sources=tuple(sources), workload=workload)


_SOCKET = "serve.sock"
"""As replicas have it: the gateway connects to no other name."""

TENSORBOARD: Kind[TensorBoardSpec, WorkloadStatus] = Kind(
    "tensorboard", TensorBoardSpec, WorkloadStatus
)
TensorBoardRecord = Record[TensorBoardSpec, WorkloadStatus]


def bucket_of(uri: str) -> str:
    """The bucket of a URI that was checked."""
    return uri.removeprefix("fds://").partition("/")[0]


def workload_of(resources: Resources) -> WorkloadSpec:
    """What runs for a TensorBoard, before it is known which folders it shows."""
    if resources.memory_bytes is None:
        resources = replace(resources, memory_bytes=MEMORY_BYTES)
    if resources.cpu_millis is None:
        resources = replace(resources, cpu_request_millis=_CPU_REQUEST_MILLIS)
    return WorkloadSpec(
        program=Program(module=MODULE, source=PACKAGE_URI, framework="python"),
        roles=(Role("tensorboard", resources=resources),),
        serves=True,
        retry=RetryPolicy(max_retries=_ENDLESS, longest_delay_s=30.0),
        keeps_files=False,
    )
