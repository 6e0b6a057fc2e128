from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloud_ml.domain.comparison.facts import facts_of_job, packages_of, values_of
from cloud_ml.domain.comparison.ranking import differing_facts
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.engines.local.probe import processor_name
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.comparison.inputs import input_uris

STATUS = WorkloadStatus(trainer_digest="d1", environment_lock="numpy==2.0.0\nSix_x==1.0 --hash=y\n")


def job(**fields: Any) -> TrainJob:
    return TrainJob("first", "trainer.task", "fds://b/t.tar.gz", **fields)


def test_secrets_are_compared_and_not_shown() -> None:
    runs = [
        facts_of_job(
            "u1",
            from_wire(
                job(job_args=f"--token={secret} --lr 1", environment={"DB_PASSWORD": secret})
            ),
            STATUS,
        )
        for secret in ("hunter1", "hunter2")
    ]
    differing = differing_facts([values_of(one) for one in runs])
    assert differing == [("argument", "token"), ("variable", "DB_PASSWORD")]
    assert "hunter" not in "".join(one.shown for facts in runs for one in facts.values())


def test_where_a_job_writes_to_is_no_argument() -> None:
    facts = facts_of_job(
        "u1",
        from_wire(
            job(
                job_args=["--model_path=fds://b/m/", "--data=fds://b/d", "word"],
                output_path="fds://b/o",
                tensorboard_logdir=None,
            )
        ),
        STATUS,
    )
    assert {fact for fact in facts if fact[0] == "output"} == {
        ("output", "model_path"),
        ("output", "CLOUDML_OUTPUT_PATH"),
    }
    assert facts["argument", "without a name"].value == "word"
    assert ("argument", "data") in facts


def test_inputs_are_the_uris_that_a_job_does_not_write_to() -> None:
    spec = from_wire(
        job(
            job_args=["--model_path=fds://b/m", "--data=fds://b/d", "fds://b/e"],
            environment={"VALIDATION": "fds://b/v", "OTHER": "x"},
            output_path="fds://b/o",
            data_input_path="fds://b/d",
        )
    )
    assert input_uris(spec) == ["fds://b/d", "fds://b/e", "fds://b/v"]


def test_a_seed_is_the_jobs_own_unless_it_is_set() -> None:
    seed = ("seed", "CLOUDML_SEED")
    plain = [facts_of_job(uid, from_wire(job()), STATUS)[seed].value for uid in ("u1", "u2", "u1")]
    assert plain[0] == plain[2] != plain[1]
    own = facts_of_job("u1", from_wire(job(environment={"CLOUDML_SEED": "7"})), STATUS)
    assert own[seed].value == "7"
    assert ("variable", "CLOUDML_SEED") not in own


def test_packages_are_those_of_the_lock() -> None:
    assert packages_of(STATUS.environment_lock) == {"numpy": "2.0.0", "six-x": "1.0"}
    assert packages_of("# a==1\n--index x==2\nurl @ https://x\n") == {}


def test_parameters_in_a_file_are_compared_as_arguments() -> None:
    texts = ('{"lr": 0.1, "api-token": "hunter1"}', '{"lr": 0.2, "api-token": "hunter2"}')
    runs = [
        facts_of_job("u1", from_wire(job(environment={"CLOUDML_PARAMETERS": text})), STATUS)
        for text in texts
    ]
    differing = differing_facts([values_of(one) for one in runs])
    assert sorted(differing) == [("argument", "api-token"), ("argument", "lr")]
    assert runs[0]["argument", "lr"].shown == "0.1"
    assert "hunter" not in "".join(one.shown for facts in runs for one in facts.values())


def test_uris_in_a_file_of_parameters_are_inputs() -> None:
    text = '{"data": "fds://b/d", "lr": 0.1}'
    spec = from_wire(job(environment={"CLOUDML_PARAMETERS": text}))
    assert [*input_uris(spec)] == ["fds://b/d"]


def test_another_processor_is_named() -> None:
    status = replace(STATUS, node="vm", processor="Intel(R) Xeon(R) Processor")
    runs = [
        facts_of_job("u1", from_wire(job()), one)
        for one in (status, replace(status, processor="AMD EPYC"))
    ]
    assert differing_facts([values_of(one) for one in runs]) == [("machine", "processor")]
    assert ("machine", "processor") not in facts_of_job("u1", from_wire(job()), STATUS)


def test_a_limit_of_disk_counts_if_somebody_has_chosen_it() -> None:
    by_default = [
        replace(spec, workload=replace(spec.workload, disk_bytes=size))
        for size, spec in ((10**9, from_wire(job())), (2 * 10**9, from_wire(job())))
    ]
    for spec in by_default:
        assert ("limit", "disk") not in facts_of_job("u1", spec, STATUS)
    chosen = facts_of_job("u1", from_wire(job(disk_limit="1G")), STATUS)
    assert chosen["limit", "disk"].value == "1G"


def test_this_machine_has_a_processor() -> None:
    assert 0 < len(processor_name()) <= 100
