"""Admission to a quota, as examples and as laws."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.quotas import (
    UNLIMITED,
    Amounts,
    Limits,
    QuotaSpec,
    excess,
    format_amount,
    requested_amounts,
    resolve,
    together,
)
from support.jobs import spec_of

NAMES = [one.name for one in fields(Amounts)]
amount = st.integers(0, 50)
limit = st.none() | st.just(UNLIMITED) | st.integers(0, 50)
jobs = st.builds(
    Amounts,
    cpu_millis=amount | st.none(),
    memory_bytes=amount | st.none(),
    gpus=amount,
    count=st.just(1),
)
limits = st.builds(Limits, cpu_millis=limit, memory_bytes=limit, gpus=limit, count=limit)
quotas = st.builds(QuotaSpec, train=limits, total=limits)


def test_a_sentence_says_what_is_used_and_what_is_asked_for() -> None:
    quota = QuotaSpec(train=Limits(cpu_millis=4000, memory_bytes=2**30, count=2))
    used = Amounts(3000, 2**29, 0, 2)
    sentences = [one.sentence() for one in excess(quota, Amounts(2000, 2**30, 0, 1), used)]
    assert sentences == [
        "the quota of cpu for train jobs: 3 cores of 4 cores are used, the job asks for 2 cores",
        "the quota of memory for train jobs: 512M of 1G are used, the job asks for 1G",
        "the quota of jobs at once for train jobs: 2 of 2 are running",
    ]


def test_where_there_is_a_limit_a_job_has_to_say_what_it_takes() -> None:
    (found,) = excess(
        QuotaSpec(train=Limits(memory_bytes=2**30)),
        requested_amounts(spec_of(cpu_limit="1").workload),
    )
    assert (found.field, found.allowed) == ("memory_limit", "at most 1G, said explicitly")
    assert "has to name its memory_limit (--memory_limit)" in found.sentence()


def test_what_a_job_asks_for() -> None:
    assert requested_amounts(spec_of(cpu_limit="0.5", memory_limit="1G").workload) == Amounts(
        500, 2**30, 0, 1
    )
    assert requested_amounts(spec_of().workload) == Amounts(None, None, 0, 1)


def test_own_limits_go_before_the_operators() -> None:
    defaults = QuotaSpec(train=Limits(cpu_millis=1000, gpus=1), storage_bytes=5)
    quota = resolve(QuotaSpec(train=Limits(cpu_millis=UNLIMITED, count=3)), defaults)
    assert quota.train == Limits(UNLIMITED, UNLIMITED, 1, 3)
    assert (quota.storage_bytes, quota.model.count) == (5, UNLIMITED)


def test_amounts_are_written_for_people() -> None:
    assert [
        format_amount("cpu_millis", 1000),
        format_amount("memory_bytes", 2**31),
        format_amount("gpus", -1),
    ] == [
        "1 core",
        "2G",
        "unlimited",
    ]


def covered(quota: QuotaSpec, amounts: Amounts) -> bool:
    """Whether amounts stay within every limit: the law, said another way."""
    return all(
        limit in (None, UNLIMITED) or (getattr(amounts, name) or 0) <= limit
        for limits in (quota.train, quota.total)
        for name in NAMES
        for limit in [getattr(limits, name)]
    )


@given(quota=quotas, requests=st.lists(jobs, max_size=8))
def test_whatever_is_let_in_stays_within_the_quota(
    quota: QuotaSpec, requests: list[Amounts]
) -> None:
    running: list[Amounts] = []
    for job in requests:
        if not excess(quota, job, together(running)):
            running.append(job)
    assert covered(quota, together(running))


@given(quota=quotas, job=jobs, others=st.lists(jobs, max_size=5))
def test_what_does_not_fit_alone_never_fits_and_what_fits_alone_fits_when_all_others_have_ended(
    quota: QuotaSpec, job: Amounts, others: list[Amounts]
) -> None:
    alone, beside = excess(quota, job), excess(quota, job, together(others))
    assert len(alone) <= len(beside)
    assert {(one.scope, one.resource) for one in alone} <= {
        (one.scope, one.resource) for one in beside
    }


@given(quota=quotas, job=jobs, used=jobs)
def test_no_limit_keeps_nobody_out_and_a_raised_one_lets_no_fewer_in(
    quota: QuotaSpec, job: Amounts, used: Amounts
) -> None:
    assert not excess(QuotaSpec(), job, used)
    raised = Limits(
        **{
            name: None if (own := getattr(quota.train, name)) in (None, UNLIMITED) else own + 1
            for name in NAMES
        }
    )
    assert len(excess(QuotaSpec(train=raised), job, used)) <= len(
        excess(QuotaSpec(train=quota.train), job, used)
    )
