"""From one release of a service to the next: at once, by trying it on some calls first, and back.
Pure.

A release is what replicas are made of, under a number that no other release of its service ever
has. How many replicas there are and who may call belongs to the service: going back does not change
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloud_ml.domain.services.spec import OF_THE_TEMPLATE, Candidate, Release, ServiceSpec
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models.common import check_count
from cloud_ml.models.services.model_service import ModelService

_TRY = "Make one: cloudml models update NAME VERSION --model_uri URI --canary 10"
_NEWER_IS_DISCARDED = (
    "A rollback discards newer releases. To serve one again, deploy it with: cloudml models update"
)
_DECIDE = "promote or roll back the candidate first; canary says that the candidate itself is to be changed"


def change_fields(
    spec: ServiceSpec,
    fields: Mapping[str, Any],
    share: int | None = None,
    *,
    served: int = 0,
    keep: int = 0,
) -> ServiceSpec:
    """The service with other fields; with a share, what makes replicas differ is tried beside what
    is served.

    Args:
        spec: The service as it is.
        fields: Of ``ModelService``.
        share: Percent of calls that are to go to the candidate.
        served: The template that has answered as a whole: the present one is kept for going back if
            it is that.
        keep: How many earlier releases are kept.

    Raises:
        InvalidRequest: A field is wrong, or nothing is to be tried.
        Conflict: A candidate is being tried, and what is served is to be changed.
    """
    if share is not None:
        return _start_candidate(spec, fields, check_count("canary", share, least=0, most=100))
    service = replace(spec.submitted, **fields)
    unlike = differing(service, spec.submitted)
    if not unlike:
        return replace(spec, submitted=service)
    if spec.candidate is not None:
        raise Conflict(
            f"{unlike[0]} cannot be changed: release {spec.candidate.template} is being tried "
            "beside what is served",
            field=unlike[0],
            value=_plain(fields.get(unlike[0])),
            allowed=_DECIDE,
            hint=_DECIDE,
        )
    number = _next(spec)
    return replace(
        _keep_release(spec, served, keep), submitted=service, template=number, newest=number
    )


def redeploy(spec: ServiceSpec, submitted: ModelService, desired: Desired) -> ServiceSpec:
    """The service made anew, under a number that no release had: nothing of before is served or
    tried any more.
    """
    number = _next(spec)
    return ServiceSpec(submitted, template=number, desired=desired, newest=number)


def retry_release(spec: ServiceSpec, release: int) -> ServiceSpec:
    """The same release under a new number, so that it is tried again; unless another one is to
    be served by now.
    """
    if spec.template != release:
        return spec
    number = _next(spec)
    return replace(spec, template=number, newest=number)


def promote_candidate(
    spec: ServiceSpec, *, served: int, keep: int, release: int | None = None
) -> ServiceSpec:
    """The candidate is what is served. Where that is so for ``release`` already, it stays so.

    Raises:
        Conflict: There is no candidate, or not this one.
    """
    candidate = spec.candidate
    if candidate is None:
        if release == spec.template:
            return spec
        raise Conflict(
            "there is no candidate to promote",
            field="release",
            value=release,
            allowed="a service with a candidate: a change that gets a part of the calls",
            hint=_TRY,
        )
    if release not in (None, candidate.template):
        raise Conflict(
            f"release {release} is not the candidate",
            field="release",
            value=release,
            allowed=str(candidate.template),
        )
    service = of_template(spec.submitted, candidate.submitted)
    return replace(
        _keep_release(spec, served, keep),
        submitted=service,
        template=candidate.template,
        candidate=None,
    )


def rolled_back(spec: ServiceSpec, *, release: int | None = None) -> ServiceSpec:
    """The candidate goes; without one, what was served before is served again. ``release`` is the
    one that is to go.

    Where that one has gone already, it stays so.

    Raises:
        Conflict: There is nothing to go back to.
    """
    goes = spec.candidate.template if spec.candidate is not None else spec.template
    if release is not None and release != goes:
        if release != spec.template and release < _next(spec):
            return spec
        raise Conflict(
            f"release {release} does not go next", field="release", value=release, allowed=str(goes)
        )
    if spec.candidate is not None:
        return replace(spec, candidate=None)
    if not spec.earlier:
        raise Conflict(
            f"there is nothing to go back to: no release from before {spec.template} is kept",
            field="release",
            value=release,
            allowed="a service with a candidate, or with an earlier release",
            hint=_NEWER_IS_DISCARDED if spec.newest > spec.template else None,
        )
    return _back_to(spec, len(spec.earlier) - 1)


def rolled_back_to(spec: ServiceSpec, release: int) -> ServiceSpec:
    """Release ``release`` is served: the candidate and all later releases go.

    Raises:
        Conflict: It is not kept.
    """
    if release == spec.template:
        return replace(spec, candidate=None)
    kept = [each.template for each in spec.earlier]
    if release not in kept:
        numbers = ", ".join(map(str, [*kept, spec.template]))
        raise Conflict(
            f"release {release} is not kept",
            field="to",
            value=release,
            allowed=f"one of {numbers}" if kept else numbers,
        )
    return _back_to(replace(spec, candidate=None), kept.index(release))


def _back_to(spec: ServiceSpec, position: int) -> ServiceSpec:
    back = spec.earlier[position]
    return replace(
        spec,
        submitted=of_template(spec.submitted, back.submitted),
        template=back.template,
        earlier=spec.earlier[:position],
        # Never reuse the numbers of the releases that are discarded here.
        newest=max(spec.newest, spec.template),
    )


def differing(one: ModelService, other: ModelService) -> list[str]:
    """The fields that make their replicas differ."""
    return [name for name in OF_THE_TEMPLATE if getattr(one, name) != getattr(other, name)]


def of_template(service: ModelService, release: ModelService) -> ModelService:
    """The service with what its replicas are made of from the release."""
    return replace(service, **{name: getattr(release, name) for name in OF_THE_TEMPLATE})


def _start_candidate(spec: ServiceSpec, fields: Mapping[str, Any], share: int) -> ServiceSpec:
    tried = {name: value for name, value in fields.items() if name in OF_THE_TEMPLATE}
    service = replace(
        spec.submitted, **{name: value for name, value in fields.items() if name not in tried}
    )
    base = spec.candidate.submitted if spec.candidate is not None else spec.submitted
    model = replace(of_template(service, base), **tried)
    if not differing(model, service):
        what = (
            "what is to be tried does not differ from what is served"
            if tried
            else "nothing is to be tried"
        )
        raise InvalidRequest(
            f"canary is {share}, but {what}",
            field="canary",
            value=share,
            allowed=_how_to_try(),
            hint=_TRY,
        )
    if spec.candidate is not None and not differing(model, spec.candidate.submitted):
        return replace(
            spec, submitted=service, candidate=replace(spec.candidate, submitted=model, share=share)
        )
    number = _next(spec)
    return replace(
        spec, submitted=service, candidate=Candidate(number, model, share), newest=number
    )


def _keep_release(spec: ServiceSpec, served: int, keep: int) -> ServiceSpec:
    """With the present release among the earlier ones, if it was any good."""
    if served != spec.template or keep <= 0:
        return spec
    return replace(spec, earlier=(*spec.earlier, Release(spec.template, spec.submitted))[-keep:])


def _next(spec: ServiceSpec) -> int:
    return max(spec.newest, spec.template) + 1


def _how_to_try() -> str:
    return (
        f"together with what is to be tried, such as model_uri; one of {', '.join(OF_THE_TEMPLATE)}"
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else None
