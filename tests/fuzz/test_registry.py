"""No parser without a harness: whoever writes one hears of it here."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from fuzz.harness import CORPUS, escaped, load
from fuzz.reading import PACKAGE, modules

TARGETS = load()

_OURS = "reads what this very program wrote, over its own pipe or in its own private folder, whole or not at all"
_KERNEL = "reads names that the kernel gives"
_THROUGH = (
    "asks another module that has a harness, or makes a decision on a word that was checked before"
)

NOT_FUZZED = {
    "aio.connections": "the host of an endpoint that was parsed; tells an address from a name",
    "aio.transport": "the answer of a server as JSON; see the harness `refusals` for the rest of "
    "it",
    "sdk.transport": "the twin of aio.transport",
    "api.auth": "a length that the HTTP parser has checked",
    "engines.local.network.listener_store": "names of files that supervisors make in a folder of "
    "the server",
    "bootstrap.credentials": "names of drafts that a server has left in its own folder",
    "api.routes.jobs": _THROUGH,
    "api.v1_compat.hp": _THROUGH,
    "api.routes.pages": "a file of our package",
    "api.mlflow.artifact_uploads": "digits of an ETag; its fields have the harness `request_fields`",
    "api.mlflow.experiments": "digits of a token; its fields have the harness `request_fields`",
    "api.mlflow.models": _THROUGH,
    "api.mlflow.runs": "a model in JSON, which is kept as a text; `test_mlflow.py` has its limits",
    "api.mlflow.shapes": _OURS,
    "api.routes.experiments": "searches with a filter of our own words",
    "api.routes.runs": _THROUGH,
    "cli.tracking.runs": _THROUGH,
    "domain.comparison.facts": "a digest in a URI, by one pattern of linear time",
    "domain.workloads.progress_events": "the number at the beginning of an event that we wrote",
    "models.jobs.clone": "digits at the end of a job's name",
    "cli.display.advice": "the first word of what the server says of a job",
    "cli.studies.documents": "a word of the command line, by patterns of linear time",
    "cli.studies.group": "whether a word that was typed is a number, for a hint",
    "cli.tracking.run_names": _THROUGH,
    "cli.studies.local_trials": "what its user's own script prints, in the rights of its user; "
    "`test_local_trials.py` has the table of lines",
    "cli.mlflow_stores.run_export": _THROUGH,
    "cli.mlflow_stores.run_import": _THROUGH,
    "domain.tracking.datasets": "what `log_inputs` has checked; `test_mlflow.py` has what it refuses",
    "state.sql.tracking.rows": _OURS,
    "state.items": _OURS,
    "models.tracking.metrics": "an answer of a server; the codec, which has a harness, says what is wrong",
    "state.tracking_rules": "a tag as JSON; `testing.state.tracking` has what is none",
    "usecases.tracking.history": "digits of a token; `test_mlflow.py` has them",
    "usecases.tracking.runs": _OURS,
    "usecases.tracking.registry": "digits of a version; `test_mlflow_registry.py` has what is none",
    "collector.archive_client": _OURS,
    "usecases.comparison.comparing": "no text: it searches the store",
    "tuning.request_loop": "a request of our own server; `test_tuner.py` has refusals",
    "tuning.tuner_process": "an answer of the tuner, whose parameters are checked as those of users",
    "api.tokens": "the address of a connection, from the kernel",
    "api.routes.monitoring": "the address of a connection, from the kernel",
    "api.sse": "digits of a header; `test_watching.py` has the table of them",
    "fetching.git": "the version of the git of the machine, and a URL that the harness "
    "`trainer_uri` has read",
    "job_sockets": "two patterns of words of bounded length; `test_opener.py` has the "
    "table of them",
    "engines.fake.process_ends": "patterns of tests",
    "engines.local.failures.log_patterns": "numbers that a search of ours writes; the search is in "
    "the harness `search_pattern`, and a unit test says what one may say that was taken over",
    "engines.local.files.unsaved_files": "names of a job's files, compared with one pattern; "
    "`test_unsaved_files.py` has them",
    "environments.trainers.modules": "names of the trainer's files, by one pattern of a word",
    "engines.local.disk.project_quotas": "answers of the kernel, of fixed sizes",
    "engines.local.disk.project_ids": "names in a folder that no job can write to",
    "engines.local.files.working_directory": "a manifest in a folder that no job can write to",
    "domain.spec_changes": "names of our own fields, to leave secrets out",
    "cli.credentials.config": "a file of one document; the harness `user_settings` reads the same with the "
    "same errors",
    "cli.server.unit": "whether a user is named by its number, for a warning",
    "cli.shortcuts.kinds": "whether a name that was typed is that of a task as Slurm writes it, for a hint",
    "cli.jobs.job_list": "whether a name that was typed is a number, for a hint",
    "cli.options.wait_limit": "whether a number that was typed has no unit, to show it with one",
    "usecases.jobs.tasks": "whether the name of a task that was asked for is a number, for a hint",
    "cli.jobs.tuning_report": "one pattern on a name that was typed, to look for its study",
    "cli.jobs.launchers": "whether a word that was typed is a number, for a hint",
    "cli.storage.group": "one pattern on what was typed, for a hint",
    "cli.jobs.table": "one pattern on a message of the server, for a column; `test_job_table.py` "
    "has the table of them",
    "cli.resource_group": "the value of one option as JSON, or as text where it is none",
    "cli.server.group": "a URL of the operator, to blot its password out",
    "usecases.jobs.role_lines": "one pattern on the name before a line; `test_role_lines.py` cuts it "
    "in all ways",
    "job": "notes of the same job, in its own rights; `test_job_module.py` has torn ones",
    "cli.jobs.options": "one option that its user types; the server checks what it says",
    "cli.display.watching": "a pattern of our own on words of our own",
    "cli.models.predicting": "a file of its user as JSON; the harness `data_files` reads what is in it",
    "cli.display.harmless": "one pattern that takes bytes out of a stream; `test_harmless.py` has the "
    "table of them",
    "domain.metrics.runs": "one pattern on the parts of a path; `test_runs.py` has the table of them",
    "usecases.metrics.file_collection": "what the server has stored itself of a file",
    "controller.programs.downloads": _OURS,
    "controller.programs.packages": "one pattern on a digest that the server has made",
    "lock_file": "the number of a process, which a server of ours wrote into its lock",
    "domain.jobs.kind": "one pattern on arguments that were checked before",
    "sdk.models.folders": "names of a folder of its user",
    "sdk.models.formats": "whether a file of its user is text: two calls of the standard library",
    "usecases.models.deploying": "the last segment of a URI that was parsed",
    "usecases.models.lineage": "names of folders that the object store has listed",
    "controller.programs.wheels": "writes archives",
    "cli.tracking.tensorboards": "a URL of the server, for a hint",
    "settings.application_names": "names that the operator sets; `test_settings.py` has the table",
    "usecases.tensorboards.tensorboards": "a key that the server has made itself",
    "tensorboard.copies": "versions that it has written itself, in the tenant's sandbox; what is wrong "
    "there is read again",
    "tensorboard.mirror": "answers of our own server, in the tenant's sandbox; `test_mirrors.py` has "
    "those that are cut",
    "controller.programs.model_requirements": "names of folders that the object store has listed",
    "doctor.network": "the endpoint that was parsed",
    "doctor.reach": "a URL of the operator's database, for a message",
    "engines.local.disk.shares": _OURS,
    "engines.gang": "the value of a secret, which the server has encoded",
    "daemons": _OURS,
    "engines.local.processes.launch": _OURS,
    "engines.local.processes.usage_samples": _OURS,
    "engines.local.network.finding": "what iptables prints of our own rules",
    "engines.local.network.pins": _OURS,
    "engines.local.network.rules": "a comment of our own, judged before it is written",
    "engines.local.network.netlink": "answers of the kernel to our own questions",
    "engines.local.cleanup.orphans": "what nft lists of tables that only root can make",
    "engines.local.cleanup.owners": "marks that only root can write; `test_orphans.py` has those that are "
    "cut or wrong",
    "engines.local.processes.proctree": _KERNEL,
    "engines.local.environments.runtimes": _OURS,
    "engines.local.spawner.supervisor_pool": _OURS,
    "engines.local.spawner.main": _OURS,
    "engines.local.spawner.requests": _OURS,
    "engines.local.spawner.prelaunched_supervisor": _OURS,
    "engines.local.warm_pool.program": "an order of the supervisor, over a pipe that nobody else "
    "has",
    "engines.local.warm_pool.interpreter": "what an interpreter says that ran imports only; "
    "`test_zygotes.py` say worse to it",
    "engines.local.cleanup.teardown": "a lock as the kernel describes it, and names of folders below /proc",
    "process_handles": "names of folders below /proc",
    "environments.ahead": _OURS,
    "gateway.control": "a line of the server, or of another gateway, with the token of a private "
    "folder",
    "gateway.main": _OURS,
    "models.services.model_service": "one pattern of a word, and the words of `shlex` as in "
    "models.jobs.train_job",
    "objects.local.multipart": _OURS,
    "objects.local.segments": _OURS,
    "objects.local.upload_folders": _OURS,
    "linux": "what the kernel has told, in a buffer of its own size",
    "engines.local.disk.kept_disk": "names of files in a folder that no job can write to",
    "environments.packages.bytecode": "one pattern of the names of folders, to leave some out",
    "models.services.model_files": "how a text begins, within 256 bytes and by two patterns of bounded length",
    "models.jobs.outputs": "whether a folder is named by a number, as in `a.isdigit()`; nothing is "
    "converted",
    "settings.gateway": "a setting of the operator: words and numbers, see `test_settings.py`",
    "settings.server": "an address that the operator has set",
    "sdk.storage.downloads": "a length that http.client has checked",
    "sdk.trainers.code_recipe": "the user's own code on the user's machine, for sets of fixed words",
    "sdk.trainers.unread_parameters": "the same code, for names of parameters as whole words",
    "sdk.trainers.packaging": "writes archives; opens them to write",
    "sdk.storage.transfers": "digits of a list of parts; its tests have the table of them",
    "api.direct": "the expressions of the framework's own routes",
    "state.sql.dialects.drafts": _OURS,
    "serving.runtimes.tensorflow.children": _OURS,
    "state.memory_records": "reads what it wrote, in memory",
    "usecases.access.identities": _THROUGH,
    "usecases.resources": _THROUGH,
    "usecases.secrets": "base64 as the standard library reads it, and a name as in models.common",
    "usecases.jobs.lookup": _THROUGH,
    "usecases.storage.uploads": _THROUGH,
}
"""Module → why nobody needs to give it bytes of strangers."""


def test_every_module_that_reads_has_a_harness_or_a_reason() -> None:
    covered = {module for one in TARGETS.values() for module in one.covers}
    reading = set(modules())
    missing = reading - covered - set(NOT_FUZZED)
    calls = {module: sorted(modules()[module]) for module in sorted(missing)}
    assert not missing, f"no harness in tests/fuzz/targets and no reason in NOT_FUZZED: {calls}"
    assert not covered & set(NOT_FUZZED), "there is a harness and a reason for none"
    gone = [module for module in NOT_FUZZED if module not in reading]
    assert not gone, f"these read nothing any more: {gone}"


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_harness_drives_the_modules_that_it_says(name: str) -> None:
    covered = {module: f"{PACKAGE}/{module.replace('.', '/')}" for module in TARGETS[name].covers}
    met: set[str] = set()

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            met.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        for data in TARGETS[name].inputs()[:6]:
            TARGETS[name].run(data)
    finally:
        sys.setprofile(None)
    for module, path in covered.items():
        assert {f"{path}.py", f"{path}/__init__.py"} & met, f"{name} calls nothing in {module}"


def test_names_of_corpora_are_names_of_harnesses() -> None:
    assert {file.stem for file in CORPUS.glob("*.txt")} <= set(TARGETS)
    for one in TARGETS.values():
        assert all(len(escaped(data)) < 200_000 for data in one.inputs()), one.name
