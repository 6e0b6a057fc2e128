"""What a caller may ask of registered models. Blocking."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tracking.registry import (
    MODEL_VERSION,
    REGISTERED_MODEL,
    ModelRecord,
    ModelVersion,
    RegisteredModel,
    RegisteredModelSpec,
    Stage,
    describe_version,
    model_tag,
    stage_tag,
)
from cloud_ml.domain.tracking.runs import RunStatus, TrackingLimits
from cloud_ml.errors import AlreadyExists
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.tracking import registry_checks as checks

_MOST_CHARACTERS = 100_000


class RegisteredModels:
    """Registered models. Those of another organisation look as absent as those that never were."""

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        *,
        records: RecordLimits,
        settings: TrackingSettings,
    ) -> None:
        self._store = store
        self._clock = clock
        self._records = records
        self._limits = TrackingLimits(
            settings.params_per_run, settings.tags_per_run, _MOST_CHARACTERS
        )

    def create(
        self,
        caller: Identity,
        name: object,
        tags: Mapping[str, object],
        description: object = "",
        *,
        once: Once | None = None,
    ) -> RegisteredModel:
        """Register a name.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The name, a tag or the description is wrong.
            AlreadyExists: The name is taken.
            QuotaExceeded: The organisation has as many models as it may have.
        """
        permit(caller, Operation.RUN_JOBS)
        checked = checks.check_model_name("name", name)
        spec = RegisteredModelSpec(
            id=uuid.uuid4().hex,
            description=checks.check_description(description),
            tags=self._check_tags(checks.check_tags(tags)),
        )
        return RegisteredModel(self._add(caller, checked, spec, once))

    def _add(
        self, caller: Identity, name: str, spec: RegisteredModelSpec, once: Once | None
    ) -> ModelRecord:
        self._records.check(REGISTERED_MODEL, caller.org, "registered models", spec)
        try:
            return self._store.create(
                REGISTERED_MODEL,
                org=caller.org,
                name=name,
                owner=caller.user,
                spec=spec,
                status=RunStatus(),
                now=self._clock(),
                once=once,
            )
        except AlreadyExists as error:
            raise _taken(name) from error

    def get(self, org: str, name: str) -> RegisteredModel:
        """A model with the newest version of each stage.

        Raises:
            NotFound: There is none.
        """
        return self.described(self.find(org, name))

    def described(self, record: ModelRecord) -> RegisteredModel:
        """A model with the newest version of each stage."""
        return RegisteredModel(record, tuple(self._latest(record, tuple(Stage))))

    def latest(self, org: str, name: str, stages: Sequence[str]) -> list[ModelVersion]:
        """The newest version in each of these stages; in all of them if none is named.

        Raises:
            InvalidRequest: There is no such stage.
            NotFound: There is no such model.
        """
        checked_stages = [checks.check_stage("stages", one) for one in stages]
        return self._latest(self.find(org, name), checked_stages or tuple(Stage))

    def _latest(self, model: ModelRecord, stages: Sequence[Stage]) -> list[ModelVersion]:
        found = []
        for stage in stages:
            match = Match(tags=(stage_tag(model.spec.id, stage),))
            newest = self._store.list(MODEL_VERSION, org=model.key.org, match=match, limit=1).items
            record = self._store.get(MODEL_VERSION, newest[0].key.uid) if newest else None
            if record is not None:
                found.append(describe_version(record, model))
        return found

    def update(
        self, caller: Identity, name: str, description: object, *, once: Once | None = None
    ) -> RegisteredModel:
        """Describe a model anew.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The description is too long.
            NotFound: There is none.
        """
        text = checks.check_description(description)
        return self.described(
            self._change_model(caller, name, lambda spec: replace(spec, description=text), once)
        )

    def rename(
        self, caller: Identity, name: str, new_name: object, *, once: Once | None = None
    ) -> RegisteredModel:
        """Give a model another name. Its versions stay.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The name is wrong.
            NotFound: There is none.
            AlreadyExists: Another model has the name.
        """
        permit(caller, Operation.RUN_JOBS)
        checked = checks.check_model_name("new_name", new_name)
        uid, now = self.find(caller.org, name).key.uid, self._clock()
        try:
            renamed = self._store.rename(REGISTERED_MODEL, uid, checked, now=now, once=once)
        except AlreadyExists as error:
            raise _taken(checked) from error
        return self.described(renamed)

    def delete(self, caller: Identity, name: str, *, once: Once | None = None) -> None:
        """Forget a model and its versions. Files stay in the bucket.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is none.
        """
        permit(caller, Operation.RUN_JOBS)
        model = self.find(caller.org, name)
        self._remove_model(model, once)
        match = Match(tags=(model_tag(model.spec.id),))
        while items := self._store.list(
            MODEL_VERSION, org=caller.org, match=match, limit=1000
        ).items:
            for line in items:
                self._store.delete(MODEL_VERSION, line.key.uid, fence=None)

    def _remove_model(self, model: ModelRecord, once: Once | None) -> None:
        uid = model.key.uid
        self._store.request_delete(REGISTERED_MODEL, uid, now=self._clock(), once=once)
        self._store.delete(REGISTERED_MODEL, uid, fence=None)

    def tag(
        self,
        caller: Identity,
        name: str,
        tags: Mapping[str, object],
        removed: Sequence[str] = (),
        *,
        once: Once | None = None,
    ) -> None:
        """Set and remove tags of a model.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A tag is wrong, or there are too many.
            NotFound: There is no such model.
        """
        checked = checks.check_tags(tags)

        def change(spec: RegisteredModelSpec) -> RegisteredModelSpec:
            return replace(spec, tags=self._check_tags(with_tags(spec.tags, checked, removed)))

        self._change_model(caller, name, change, once)

    def find(self, org: str, name: str) -> ModelRecord:
        """A model.

        Raises:
            NotFound: There is none.
        """
        found = self._store.find(REGISTERED_MODEL, org, name) if len(name) <= 256 else None
        if found is None:
            raise checks.no_model(name)
        return found

    def _change_model(
        self,
        caller: Identity,
        name: str,
        change: Callable[[RegisteredModelSpec], RegisteredModelSpec],
        once: Once | None,
    ) -> ModelRecord:
        permit(caller, Operation.RUN_JOBS)
        uid, now = self.find(caller.org, name).key.uid, self._clock()
        return self._store.change_spec(REGISTERED_MODEL, uid, change, now=now, once=once)

    def _check_tags(self, tags: Mapping[str, str]) -> Mapping[str, str]:
        tracking_rules.check_number("tags", len(tags), self._limits.tags)
        tracking_rules.check_characters("tags", tags, self._limits.characters)
        return tags


def with_tags(
    there: Mapping[str, str], new: Mapping[str, str], removed: Sequence[str]
) -> dict[str, str]:
    """Tags with new ones, and without those whose keys are removed."""
    return {key: value for key, value in {**there, **new}.items() if key not in removed}


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"there is a registered model {name[:80]!r} already",
        field="name", value=name[:80], allowed="a name that is not in use",
    )  # fmt: skip
