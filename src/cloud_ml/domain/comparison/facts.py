"""What is known of a job that may have changed its result. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.domain.comparison.inputs import InputManifest
from cloud_ml.domain.comparison.ranking import Fact
from cloud_ml.domain.jobs.kind import exports
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.tracking.arguments import as_parameters, parameters_of
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.seeds import SEED_VARIABLE, seed_of
from cloud_ml.domain.workloads.spec import Role
from cloud_ml.models import parameter_file
from cloud_ml.models.common import format_memory
from cloud_ml.models.secrets.arguments import mask_words
from cloud_ml.models.secrets.secret import mask_variables

LONGEST_SHOWN = 300
_MOST_PACKAGES = 2000
_SENT_CODE = re.compile("/\\.trainers/[0-9a-f]{2}/([0-9a-f]{64})/")


@dataclass(frozen=True)
class ComparedValue:
    """``value`` is compared, ``shown`` is what may be shown of it."""

    value: str
    shown: str


JobFacts = Mapping[Fact, ComparedValue]


def facts_of_job(uid: str, spec: JobSpec, status: WorkloadStatus) -> JobFacts:
    """Everything that may have changed the result of a job."""
    facts: dict[Fact, ComparedValue] = {}
    for fact, value in _plain_facts(uid, spec, status):
        if value:
            facts[fact] = ComparedValue(value, value[:LONGEST_SHOWN])
    program = spec.workload.program
    shown = mask_variables(program.variables)
    in_file = _parameters_in_file(program.variables, shown)
    given = {**in_file, **_arguments(program.arguments)}
    for name, value in program.variables.items():
        if name != SEED_VARIABLE and not (in_file and name == parameter_file.VARIABLE):
            given["variable", name] = ComparedValue(value, shown[name][:LONGEST_SHOWN])
    submitted = spec.submitted
    fields = (submitted.log_path, submitted.data_output_path, submitted.tensorboard_logdir)
    written = {uri.rstrip("/") for uri in (*exports(spec), *fields) if uri}
    for (kind, name), one in given.items():
        facts["output" if one.value.rstrip("/") in written else kind, name] = one
    return facts


def facts_of_parameters(parameters: Mapping[str, str]) -> JobFacts:
    """What is known of a run without a job."""
    return {
        ("argument", name): ComparedValue(value, value[:LONGEST_SHOWN])
        for name, value in parameters.items()
    }


def facts_of_inputs(manifests: Mapping[str, InputManifest]) -> JobFacts:
    """What the URIs of a run led to."""
    return {
        ("data", uri): ComparedValue(manifest.digest, manifest.shown)
        for uri, manifest in manifests.items()
    }


def values_of(facts: JobFacts) -> Mapping[Fact, str]:
    """What is compared."""
    return {fact: one.value for fact, one in facts.items()}


def _plain_facts(
    uid: str, spec: JobSpec, status: WorkloadStatus
) -> Iterator[tuple[Fact, str | None]]:
    job, workload = spec.submitted, spec.workload
    yield ("code", "files"), status.trainer_digest or _code_of_uri(job.trainer_uri)
    if isinstance(job.git, dict):
        for name in ("commit", "branch", "remote", "diff"):
            yield ("git", name), job.git.get(name)
    yield ("module", "name"), job.module_name
    yield ("module", "prepare_command"), job.prepare_command and "set"
    yield ("framework", "runtime"), status.runtime
    yield ("seed", SEED_VARIABLE), seed_of(uid, workload.program.variables)
    yield ("checkpoint", "restore_from"), workload.restore_from
    yield ("tasks", "recipe"), workload.recipe
    yield ("machine", "node"), status.node
    yield ("machine", "processor"), status.processor or None
    yield ("attempts", "count"), str(status.attempt)
    yield ("secret", "names"), ", ".join(sorted(workload.secrets))
    for role in workload.roles:
        yield ("tasks", role.name), str(status.world.get(role.name, role.replicas))
        yield from _limits(role)
    # The default is a share of what is free when a job is submitted: nobody has changed it.
    chosen = workload.disk_bytes if job.disk_limit is not None else None
    yield ("limit", "disk"), format_memory(chosen) if chosen else None
    yield ("limit", "wall_time"), f"{workload.wall_time_s}s" if workload.wall_time_s else None
    for name, version in packages_of(status.environment_lock).items():
        yield ("package", name), version


def _code_of_uri(uri: str) -> str:
    """The digest in the URI of code that a client sent; other code is known by its URI, until the
    job has fetched it.
    """
    found = _SENT_CODE.search(uri)
    return found[1] if found else uri


def _parameters_in_file(variables: Mapping[str, str], shown: Mapping[str, str]) -> JobFacts:
    """The parameters in the file of a job, as if they were arguments."""
    texts = (variables.get(parameter_file.VARIABLE, ""), shown.get(parameter_file.VARIABLE, ""))
    values, masked = (as_parameters(parameter_file.decode_parameters(text) or {}) for text in texts)
    return {
        ("argument", name): ComparedValue(value, masked.get(name, "")[:LONGEST_SHOWN])
        for name, value in values.items()
    }


def _limits(role: Role) -> Iterator[tuple[Fact, str | None]]:
    resources = role.resources
    if resources.cpu_millis is not None:
        yield ("limit", f"cpu of {role.name}"), f"{resources.cpu_millis / 1000:g}"
    if resources.memory_bytes is not None:
        yield ("limit", f"memory of {role.name}"), format_memory(resources.memory_bytes)
    if resources.gpus:
        yield ("limit", f"gpus of {role.name}"), str(resources.gpus)


def _arguments(words: Sequence[str]) -> JobFacts:
    """Flags by their names; other words as one fact."""
    values, shown = parameters_of(words), parameters_of(mask_words(words))
    facts = {
        ("argument", name): ComparedValue(value, shown.get(name, "")[:LONGEST_SHOWN])
        for name, value in values.items()
    }
    if rest := _without_flags(words):
        facts["argument", "without a name"] = ComparedValue(
            " ".join(rest), " ".join(mask_words(rest))[:LONGEST_SHOWN]
        )
    return facts


def _without_flags(words: Sequence[str]) -> list[str]:
    rest: list[str] = []
    before = ""
    for word in words:
        if not word.startswith("-") and not (before.startswith("-") and "=" not in before):
            rest.append(word)
        before = word
    return rest


def packages_of(lock: str) -> Mapping[str, str]:
    """Names and versions of a lock: its lines ``name==version``."""
    found: dict[str, str] = {}
    for line in lock.splitlines():
        head = line.split(" ", 1)[0]
        name, equals, version = head.partition("==")
        if equals and not head.startswith(("-", "#")) and len(found) < _MOST_PACKAGES:
            found[name.lower().replace("_", "-")] = version.rstrip("\\").strip()
    return found
