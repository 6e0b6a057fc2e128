"""JSON, and the documents that travel in it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from cloud_ml.api import documents
from cloud_ml.api.v1_compat import quotas as original
from cloud_ml.domain.jobs import spec
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics import reports as metric_lines
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.workloads import checkpoints, progress
from cloud_ml.errors import Damaged, InvalidRequest
from cloud_ml.models import codec, server
from cloud_ml.models.admin import accounts, quota
from cloud_ml.models.jobs import framework, job, train_job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.storage import objects
from cloud_ml.models.storage.batches import Entry, EntryReader
from cloud_ml.state import rules
from cloud_ml.state.sql import records
from fuzz.harness import target

KINDS: list[Any] = [
    value
    for module in (accounts, framework, job, quota, objects, server, train_job)
    for value in vars(module).values()
    if isinstance(value, type)
    and dataclasses.is_dataclass(value)
    and value.__module__ == module.__name__
]
HUGE = b"9" * 400
JOB = {
    "job_name": "linear",
    "module_name": "trainer.task",
    "trainer_uri": "fds://bucket/trainer-1.0.tar.gz",
    "job_args": "--a 'b c'",
    "cpu_limit": 0.5,
    "memory_limit": "100M",
    "gpu_limit": 0,
    "environment": {"A": "b"},
    "labels": {"k": "v"},
    "wall_time_limit": "1d12h",
    "hang_timeout": "10m",
    "hyperparameters": {"x": [1, 2.5, None, {"y": "z"}]},
    "max_retries": 3,
    "disk_limit": "1G",
    "worker_count": "2",
    "worker_spec": {"cpu_limit": "1", "task_args": "--shard 'a b'"},
}
ROLES = {"cluster_spec": {"worker": {"count": 2, "cpu_limit": "1"}, "ps": {"gpu_limit": "0"}}}
ELASTIC = {
    "elastic": {"worker": {"min": 1, "max": 4}, "every_s": 60},
    "worker_count": "1:4",
    "recipe": "pytorch",
}
RESTART = {
    "restart": {
        "policy": "on-failure",
        "rules": [{"exit_codes": [3], "roles": ["worker"], "action": "restart-task"}],
        "healthy_s": 60,
        "memory_factor": "1.5",
        "memory_most": "2G",
    }
}
_FIELDS = [f'"{field.name}":' for field in dataclasses.fields(TrainJob)]


@target(
    "api.documents",
    seeds=['{"a": [1, 2.5, "x", null, '
           'true]}', "[" * 40, '{"a": 1, "a": 2}', "NaN", '"\\ud800"', "1e999", b"\xef\xbb\xbf{}",
           '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-32"), '{"a": 1}'.encode("utf-16-le"), b"9" * 5000, "-0.0"],
    words=["{", "[", '"', "\\u", "\\ud800", "\\udc00", "NaN", "-Infinity", "1e999", "\ufeff", "\0", "true", "-0", "1E-400"],
)  # fmt: skip
def json_body(data: bytes) -> None:
    """Refused; or UTF-8 that every reader takes for the same, and that comes back when it is
    written.
    """
    try:
        found = documents.read(data)
    except InvalidRequest as error:
        assert len(str(error)) < 600  # noqa: PT017
        return
    assert found == json.loads(data.decode("utf-8"))
    if isinstance(found, dict):
        assert documents.read_object(data) == found
        assert documents.read(bytes(documents.answer(found).body)) == found


@target(
    "models.storage.batches",
    seeds=[Entry("a/b", 3, hashlib.sha256(b"abc").hexdigest(), "e").line() + b"abc",
           Entry("a", 0, hashlib.sha256(b"").hexdigest()).line() * 2, Entry("a", error={"code": "x"}).line()],
    words=['"key":', '"size":', '"sha256":', '"error":', "{", "}", "\n", "0" * 64, "1e3", "-1", "true", "9" * 16],
)  # fmt: skip
def object_batch(data: bytes) -> None:
    """Refused; or read the same however it is cut, with exactly the bytes that each line
    announces.
    """
    outcomes = []
    for size in (1, 7, max(1, len(data))):
        reader, found = EntryReader(), list[tuple[Entry, bytes]]()
        try:
            for at in range(0, len(data), size):
                for read in reader.feed(data[at : at + size]):
                    if isinstance(read, Entry):
                        found.append((read, b""))
                    else:
                        found[-1] = (found[-1][0], found[-1][1] + read)
            reader.end()
        except InvalidRequest as error:
            assert len(str(error)) < 600  # noqa: PT017
            outcomes.append(("refused", error.field))
            continue
        assert all(
            len(content) == (0 if entry.error is not None else entry.size)
            for entry, content in found
        )
        again = b"".join(entry.line() + content for entry, content in found)
        outcomes.append(("read", again))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@target(
    "models.codec",
    "models.common",
    "domain.jobs.elastic",
    "domain.jobs.roles",
    "models.jobs.elastic",
    "models.jobs.restart",
    "models.jobs.task_arrays",
    "models.jobs.train_job",
    "state.rules",
    seeds=[json.dumps(JOB), json.dumps({**JOB, **ROLES, "worker_count": None, "worker_spec": None}), json.dumps({**JOB, "array": "0-9:3,12%2", "max_failed": 1, "worker_count": None, "worker_spec": None}), json.dumps({**JOB, **ELASTIC}), json.dumps({**JOB, **RESTART}), json.dumps({**JOB, "job_args": ["a", "b"]}), b'{"job_name":"a","module_name":"b","trainer_uri":"c","cpu_limit":' + HUGE + b"}",
           b'{"job_name":"a","module_name":"b","trainer_uri":"c","wall_time_limit":' + HUGE + b"}"],
    words=[*_FIELDS, '"fds://', "1e308", HUGE, '"\\u0000"', '"0.001"', '"1d"', "{}", "[]", "null", "-1", '"default"'],
)  # fmt: skip
def train_job_document(data: bytes) -> None:
    """Refused with its field; or a job that comes back when it is written, and that can be
    stored.
    """
    try:
        document = documents.read_object(data)
        made = codec.decode(TrainJob, document)
        normal = spec.from_wire(made)
    except InvalidRequest as error:
        assert error.field  # noqa: PT017
        return
    again = codec.decode(TrainJob, json.loads(json.dumps(codec.encode(made))))
    assert again == made
    assert spec.from_wire(again) == normal
    rules.to_text(TRAIN_JOB.decode_spec, normal)


@target(
    "models.codec",
    seeds=[bytes([number]) + content for number, content in enumerate(
        [b"{}", b'{"items": []}', b'{"created_at": "0001-01-01T00:00:00+23:59"}', b'{"cpu": 1' + b"0" * 400 + b"}"] * 12)],
    words=sorted({f'"{field.name}":' for kind in KINDS for field in dataclasses.fields(kind)})
    + ["null", "[]", "{}", "1", '"x"', "true", '"2026-01-31T12:00:00Z"', '"0001-01-01T00:00:00+23:59"', HUGE, "1.5"],
)  # fmt: skip
def wire_document(data: bytes) -> None:
    """Any document as any type of the wire, lenient as clients are: refused, or it comes back
    when it is written.
    """
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    try:
        document = json.loads(data[1:])
    except (ValueError, RecursionError):
        return
    try:
        made = codec.decode(kind, document, ignore_unknown=True)
    except InvalidRequest as error:
        assert error.field  # noqa: PT017
        return
    assert codec.decode(kind, codec.encode(made)) == made


@target(
    "state.sql.records",
    seeds=[
        "{}",
        "[",
        '{"submitted": {}}',
        '{"submitted": {"labels": {}}}',
        "[]",
        "null",
        '{"roles": []}',
        "[" * 3000,
        "9" * 5000,
        '{"a": "' + "x" * 3000 + '"}',
    ],
    words=['"roles"', '"phase"', "[", "{", "null"],
)
def stored_record(data: bytes) -> None:
    """What a damaged database holds is said to be damaged."""
    row = SimpleNamespace(spec=data.decode("utf-8", "replace"), uid="u")
    for kind in (TRAIN_JOB, REPLICA):
        with contextlib.suppress(Damaged):
            records.decode_spec(kind, row)  # type: ignore[arg-type]


@target(
    "api.v1_compat.quotas",
    seeds=[
        '{"org_mail": "a@b"}',
        '{"org_mail": 5}',
        "[" * 3000,
        b"\xff",
        '{"org_mail": "' + "a" * 300 + '"}',
    ],
    words=['"org_mail"', ":", "{", "\\u0000"],
)
def original_question(data: bytes) -> None:
    """A mail address or nothing."""
    mail = original.mail_in(data)
    assert len(mail) <= 254
    assert mail == "" or (mail.isascii() and mail.isprintable())


@target(
    "models.codec",
    "usecases.jobs.finding",
    seeds=["2026-01-31T12:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-W01-1", "20260131T000000Z"],
    words=["T", "Z", "+", "-", ":", ".", "W", "24:00", "\u0662"],
)  # fmt: skip
def wire_time(data: bytes) -> None:
    """A time with its offset comes back; anything else is refused."""
    from cloud_ml.usecases.jobs import finding

    value = data.decode("utf-8", "replace")
    with contextlib.suppress(InvalidRequest):
        finding.Filters(
            name=value, created_after=value, labels=[value], user=value, framework=value
        ).match()
    with contextlib.suppress(InvalidRequest):
        finding.phases_of(value)
    try:
        moment = finding.read_time("t", value) or datetime.now(UTC)
    except InvalidRequest:
        return
    assert codec.parse_time(codec.format_time(moment)) == moment


@target(
    "domain.workloads.checkpoints",
    seeds=['{"path": "a/b", "step": 1, "time": 1767225600}\n{"path": "c", "step": null, "time": 1.5}',
           'model_checkpoint_path: "model.ckpt-900"\n', "[" * 4000],
    words=['"path":', '"step":', '"time":', "..", "/", "\0", "\n", "null", "NaN", "1e300", "model_checkpoint_path: ", '"'],
)  # fmt: skip
def checkpoint_notes(data: bytes) -> None:
    """Whatever a job notes, what is read of it are paths in its own folder; half a line in front
    changes nothing.
    """
    found = checkpoints.parse_saved(data)
    assert checkpoints.parse_saved(b'{"path": "x\n' + data) == found
    one = checkpoints.by_tensorflow(data, datetime(2026, 1, 1, tzinfo=UTC))
    found += checkpoints.believed(data, one, data)
    for noted in found:
        assert not {"", ".", ".."} & set(noted.path.split("/"))
        assert "\0" not in noted.path
        assert noted.at.tzinfo is not None


@target(
    "domain.metrics.reports",
    seeds=['{"time": 1, "step": 3, "metrics": {"loss": 0.5, "auc": NaN}}\n',
           '{"time": 1e999, "metrics": {"a": 1}}\n', '\n{"time": 1, "metrics": {"\\ud800": 1e400}}\n', "[" * 5000 + "\n"],
    words=['"time"', '"step"', '"metrics"', '"restart"', "NaN", "-Infinity", "\n", "1e400", "true", "null"],
)  # fmt: skip
def metric_reports(data: bytes) -> None:
    """Values within bounds, of whole lines, and none of what is after them."""
    for full in (False, True):
        found = metric_lines.read_reports(data, full=full)
        assert 0 <= found.taken <= len(data)
        for value in found.values:
            assert metric_lines.is_metric_name(value.name)
            assert value.step is None or abs(value.step) <= 10**18
            assert 0 <= value.at <= 10**15


@target(
    "domain.workloads.progress",
    seeds=['{"time": 1767225600, "step": 1, "of": 9, "metrics": {"loss": 0.5}}\n{"time": 1, "fraction": 0.5}', "[" * 4000],
    words=['"time":', '"step":', '"of":', '"fraction":', '"metrics":', "{", "}", "NaN", "1e999", "-1", "true", "\n"],
)  # fmt: skip
def reports(data: bytes) -> None:
    """Whatever a job reports, what is read of it are finite numbers within bounds, and JSON."""
    if (found := progress.read_reports(data)) is None:
        return
    assert found.step is None or found.step >= 0
    assert found.fraction is None or 0 <= found.fraction <= 1
    assert len(found.metrics) <= progress.MOST_METRICS
    json.dumps(codec.encode(found), allow_nan=False)
    assert not progress.milestone_of([found], []).is_beyond(progress.milestone_of([found], []))
