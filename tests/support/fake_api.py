"""The modern surface over dictionaries: as much of it as clients need, without an engine behind
it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from cloud_ml.domain.jobs.clones import clone_job
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from cloud_ml.models import codec
from cloud_ml.models.jobs.checkpoints import JobCheckpoint, JobCheckpoints
from cloud_ml.models.jobs.clone import JobClone
from cloud_ml.models.jobs.framework import PreparationLine, Runtime, RuntimePage
from cloud_ml.models.jobs.job import (
    Job,
    JobDetails,
    JobEvent,
    JobEvents,
    JobPage,
    JobSummary,
    JobTask,
    JobTasks,
)
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.server import ServerInfo, WhoAmI
from cloud_ml.models.storage.batches import Entry, EntryReader
from cloud_ml.models.storage.objects import (
    PRESIGN_LIMIT_S,
    BatchOutcome,
    BatchOutcomes,
    Bucket,
    BucketPage,
    ObjectPage,
    StoredObject,
)
from cloud_ml.models.tracking.metrics import (
    JobSeries,
    MetricPoint,
    MetricPoints,
    MetricSeries,
    SummaryTag,
)
from cloud_ml.models.tracking.run import Run, RunPage
from support.fake_server import Reply, Seen, json_reply, refusal

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
_STATUS = {
    InvalidRequest: 400,
    NotFound: 404,
    AlreadyExists: 409,
    Conflict: 409,
    PreconditionFailed: 412,
}


def make_job(name: str, *, phase: str = "Queued", revision: int = 1, **more: object) -> Job:
    facts = {
        "uid": f"uid-{name}",
        "name": name,
        "org": "default",
        "owner": "admin",
        "state": phase.lower(),
        "attempt": 1,
    }
    job = Job(**facts, phase=phase, revision=revision, created_at=START, updated_at=START)  # type: ignore[arg-type]
    return replace(job, **more)  # type: ignore[arg-type]


class FakeApi:
    """Jobs end at once, in the way that ``outcome`` tells, after they have printed ``log``."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, str] = {}
        self.objects: dict[str, bytes] = {}
        self.buckets = ["cloudml"]
        self.log = b"epoch 1\nepoch 2\nepoch 3\n"
        self.deletes_at_once = False
        self.tasks: list[JobTask] = []
        self.runtimes = [
            Runtime(
                name="python",
                version="3.11",
                default=True,
                python="3.11.7",
                ready=True,
                packages=["pip==26.1"],
            ),
            Runtime(
                name="tensorflow",
                version="2.16",
                default=True,
                aliases=["tf"],
                accepts=["2.*"],
                size_bytes=2**30,
            ),
            Runtime(
                name="tensorflow",
                version="1.15",
                aliases=["tf"],
                environment={"TF_USE_LEGACY_KERAS": "1"},
            ),
        ]
        self.preparation: list[PreparationLine] = []
        self.series: list[MetricSeries] = []
        self.summaries: list[SummaryTag] = []
        self.checkpoints: list[JobCheckpoint] = []
        self.events: list[JobEvent] = []
        self.points: list[MetricPoint] = []
        self.points_query: dict[str, str] = {}
        self.runs_query: dict[str, str] = {}
        self.scopes: list[str] | None = None
        self.presign_limit_s = PRESIGN_LIMIT_S
        self.outcome: dict[str, object] = {"phase": "Succeeded", "exit_code": 0}

    def __call__(self, seen: Seen) -> Reply:
        try:
            kind, *rest = seen.path.removeprefix("/api/v1/").split("/", 2)
            return getattr(self, f"on_{kind}")(seen, *rest)
        except CloudMlError as error:
            return refusal(error, _STATUS[type(error)])

    def on_whoami(self, _: Seen) -> Reply:
        me = WhoAmI(
            org="default",
            org_id="1",
            user="admin",
            role="admin",
            default_bucket="cloudml",
            scopes=self.scopes,
        )
        return json_reply(codec.encode(me))

    def on_server(self, _: Seen) -> Reply:
        info = ServerInfo(version="9.9", presign_limit_s=self.presign_limit_s)
        return json_reply(codec.encode(info) | {"a_newer_field": 1})

    def on_frameworks(self, _: Seen) -> Reply:
        return json_reply({"tensorflow": ["2.16", "1.15"], "python": ["3.11"]})

    def on_runtimes(self, seen: Seen, framework: str = "", verb: str = "") -> Reply:
        family = [one for one in self.runtimes if framework in ("", one.name, *one.aliases)]
        if not family:
            raise NotFound(
                f"there is no framework {framework!r}", field="framework", value=framework
            )
        if verb == "prepare":
            lines = [json.dumps(codec.encode(line)).encode() + b"\n" for line in self.preparation]
            return Reply(200, lines, {"content-type": "application/x-ndjson"})
        if seen.method == "DELETE":
            return Reply(204, [])
        return json_reply(codec.encode(RuntimePage(items=family)))

    def on_runs(self, seen: Seen) -> Reply:
        self.runs_query = dict(seen.query)
        found = [
            Run(
                uid=job.uid, name=job.name, experiment="Default", experiment_id="0", is_job=True,
                user="ann", state="RUNNING", created_at=START, metrics={"loss": 0.5},
            )
            for job in self.jobs.values()
        ]  # fmt: skip
        return json_reply(codec.encode(RunPage(items=found)))

    def on_jobs(self, seen: Seen, name: str = "", verb: str = "") -> Reply:
        if not name:
            return self._submit(seen) if seen.method == "POST" else self._list(seen)
        job = next((one for one in self.jobs.values() if name in (one.name, one.uid)), None)
        if job is None:
            raise NotFound(f"there is no job {name}", field="job_name", value=name)
        if verb == "logs":
            lines = self.log.splitlines(keepends=True)
            lines_to_send = lines[len(lines) - int(seen.query.get("lines", len(lines))) :]
            if seen.query.get("follow"):
                self._change(job, **self.outcome)
            content = b"".join(lines_to_send)[int(seen.query.get("offset", 0)) :]
            return Reply(200, content.splitlines(keepends=True), {"content-type": "text/plain"})
        if verb == "events":
            event = JobEvent(
                id=1, at=START, type="Normal", reason="Submitted", message="submitted by admin"
            )
            return json_reply(codec.encode(JobEvents(items=[event, *self.events])))
        if verb == "checkpoints":
            return json_reply(codec.encode(JobCheckpoints(uri="", items=self.checkpoints)))
        if verb == "tasks":
            return json_reply(codec.encode(JobTasks(attempt=job.attempt, items=self.tasks)))
        if verb.startswith("series/"):
            self.points_query = dict(seen.query)
            points = MetricPoints(name=verb[7:], task="master-0", items=self.points)
            return json_reply(codec.encode(points))
        if verb == "series":
            return json_reply(codec.encode(JobSeries(items=self.series, summaries=self.summaries)))
        if verb == "cancel" and job.finished:
            raise Conflict(f"{name} has ended already: {job.phase}", field="phase")
        if verb == "cancel":
            job = self._change(job, phase="Stopping", reason="Cancelled")
        if verb == "clone":
            spec, changes = codec.decode(TrainJob, job.spec), codec.decode(JobClone, seen.document)
            copy = json.dumps(codec.encode(clone_job(spec, changes)))
            return self._submit(replace(seen, body=copy.encode()))
        if verb == "start":
            job = self._change(job, phase="Queued")
        if seen.method == "DELETE":
            job = self._change(job, deleting=True)
            if self.deletes_at_once:
                del self.jobs[job.name]
        return json_reply(codec.encode(job), 202 if seen.method == "DELETE" else 200)

    def on_storage(self, seen: Seen, bucket: str = "", key: str = "") -> Reply:
        if not bucket:
            buckets = [Bucket(name=name, org="default", created_at=START) for name in self.buckets]
            return json_reply(codec.encode(BucketPage(items=buckets)))
        if (bucket, key) == ("-", "copy"):
            document = seen.document
            source, target = (
                f"fds://{document[f'{end}bucket']}/{document[f'{end}key']}"
                for end in ("source_", "")
            )
            self.objects[target] = self.objects[source]
            return json_reply(codec.encode(self._stored(target)), 201)
        if bucket == "-" and key.startswith(("batch/", "read/")):
            return self._batch(seen, *key.split("/", 1))
        if not key:
            return self._bucket(seen, bucket)
        uri = f"fds://{bucket}/{key}"
        if seen.method == "PUT":
            if uri in self.objects and seen.headers.get("if-none-match") == "*":
                raise AlreadyExists(f"there is an object {uri} already")
            self.objects[uri] = seen.body
            return json_reply(codec.encode(self._stored(uri)), 201)
        if uri not in self.objects:
            raise NotFound(f"there is no object {uri}", field="key", value=key)
        if seen.method == "DELETE":
            if seen.headers.get("if-match", "*") not in ("*", f'"{self._stored(uri).etag}"'):
                raise PreconditionFailed(f"{uri} has changed", field="If-Match")
            return json_reply(
                codec.encode(self._stored(uri)), 200 if self.objects.pop(uri) is not None else 500
            )
        headers = {
            "last-modified": format_datetime(START, usegmt=True),
            "etag": f'"{self._stored(uri).etag}"',
            "content-length": str(len(self.objects[uri])),
            "repr-digest": f"sha-256=:{base64.b64encode(hashlib.sha256(self.objects[uri]).digest()).decode()}:",
        }
        return Reply(200, self.objects[uri], headers)

    def _submit(self, seen: Seen) -> Reply:
        job = codec.decode(TrainJob, seen.document)
        key = seen.headers["idempotency-key"]
        if self.keys.get(key) != job.job_name:
            if job.job_name in self.jobs:
                raise AlreadyExists(
                    f"a job named {job.job_name} exists already",
                    same_spec=True,
                    field="job_name",
                )
            phase = "Saved" if job.save_mode else "Queued"
            self.jobs[job.job_name] = make_job(job.job_name, phase=phase, spec=codec.encode(job))
            self.keys[key] = job.job_name
        return json_reply(codec.encode(self.jobs[job.job_name]), 201)

    def _list(self, seen: Seen) -> Reply:
        limit, after = int(seen.query["limit"]), int(seen.query.get("after", 0))
        states = seen.query.get("state", "").lower().split(",")
        found = [job for job in self.jobs.values() if states == [""] or job.state in states]
        detailed = seen.query.get("details") == "true"
        named = bool(seen.query.get("metrics"))
        items = [
            _summary(job, detailed=detailed, named=named) for job in found[after : after + limit]
        ]
        more = after + limit < len(found)
        return json_reply(codec.encode(JobPage(items=items, next=after + limit if more else None)))

    def _bucket(self, seen: Seen, bucket: str) -> Reply:
        if seen.method == "PUT":
            self.buckets.append(bucket)
            return json_reply(
                codec.encode(Bucket(name=bucket, org="default", created_at=START)), 201
            )
        if bucket not in self.buckets:
            raise NotFound(f"there is no bucket {bucket}", field="bucket", value=bucket)
        prefix = seen.query.get("prefix", "")
        objects, folders = [], set()
        for uri in sorted(self.objects):
            key = uri.removeprefix(f"fds://{bucket}/")
            if uri == key or not key.startswith(prefix):
                continue
            head, slash, _ = key[len(prefix) :].partition("/")
            if seen.query.get("delimiter") and slash:
                folders.add(prefix + head + "/")
            else:
                objects.append(self._stored(uri))
        return json_reply(codec.encode(ObjectPage(objects=objects, folders=sorted(folders))))

    def _batch(self, seen: Seen, verb: str, bucket: str) -> Reply:
        if verb == "batch":
            keys: list[str] = []
            for one in EntryReader().feed(seen.body):
                if isinstance(one, Entry):
                    keys.append(one.key)
                    self.objects[f"fds://{bucket}/{one.key}"] = b""
                else:
                    self.objects[f"fds://{bucket}/{keys[-1]}"] += one
            items = [
                BatchOutcome(key=key, object=self._stored(f"fds://{bucket}/{key}")) for key in keys
            ]
            return json_reply(codec.encode(BatchOutcomes(items=items)))
        body = b""
        for key in seen.document["keys"]:
            content = self.objects[f"fds://{bucket}/{key}"]
            body += Entry(key, len(content), hashlib.sha256(content).hexdigest()).line() + content
        return Reply(200, body, {"content-length": str(len(body))})

    def _stored(self, uri: str) -> StoredObject:
        bucket, _, key = uri.removeprefix("fds://").partition("/")
        content = self.objects[uri]
        etag = hashlib.sha256(content).hexdigest()
        return StoredObject(bucket=bucket, key=key, size=len(content), modified=START, etag=etag)

    def _change(self, job: Job, **changes: object) -> Job:
        ended = (
            {"started_at": START, "finished_at": START + timedelta(seconds=3)}
            if "exit_code" in changes
            else {}
        )
        changed = replace(job, revision=job.revision + 1, **ended, **changes)  # type: ignore[arg-type]
        self.jobs[job.name] = changed
        return changed


def _summary(job: Job, *, detailed: bool, named: bool) -> JobSummary:
    own = {name for name in JobDetails.__dataclass_fields__ if name != "arguments"}
    details = JobDetails(**{name: getattr(job, name) for name in own}) if detailed else None
    names = set(JobSummary.__dataclass_fields__) - {"details", "metrics"}
    metrics = {"loss": 0.5} if named else None
    known = {name: getattr(job, name) for name in names}
    return JobSummary(**known, details=details, metrics=metrics)
