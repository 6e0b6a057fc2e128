"""What a caller may ask of the versions of registered models, their aliases and stages. Blocking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tracking.registry import (
    MODEL_VERSION,
    REGISTERED_MODEL,
    ModelRecord,
    ModelVersion,
    ModelVersionSpec,
    RegisteredModelSpec,
    Stage,
    VersionRecord,
    describe_version,
    stage_tag,
)
from cloud_ml.domain.tracking.runs import RunStatus
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.tracking import registry_checks as checks
from cloud_ml.usecases.tracking.checks import check_value
from cloud_ml.usecases.tracking.registered_models import RegisteredModels, with_tags

MOST_ALIASES = 1000


class Registry(RegisteredModels):
    """Registered models with their versions.

    A model and each of its versions is a record. A version belongs to the id of its model, so a
    model that is renamed keeps its versions.

    Several servers may change the registry at the same time. A change of one record is one
    transaction. Where a change needs two records, each order in which others come between leads to
    one of the two results that the changes have one after the other.
    """

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        *,
        records: RecordLimits,
        settings: TrackingSettings,
        refer: Callable[[str, Sequence[str]], str] = lambda _org, _uris: "",
    ) -> None:
        super().__init__(store, clock, records=records, settings=settings)
        self._refer = refer

    # ---- aliases

    def set_alias(
        self,
        caller: Identity,
        name: str,
        alias: object,
        version: object,
        *,
        once: Once | None = None,
    ) -> None:
        """Have an alias point to a version.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The alias is none, or there are too many.
            NotFound: There is no such model or version.
        """
        checked = checks.check_alias(alias)
        found = self.version(caller.org, name, version).record

        def change(spec: RegisteredModelSpec) -> RegisteredModelSpec:
            aliases = {**spec.aliases, checked: found.spec.number}
            tracking_rules.check_number("aliases", len(aliases), MOST_ALIASES)
            return replace(spec, aliases=aliases)

        model = self._change_model(caller, name, change, once)
        if self._store.get(MODEL_VERSION, found.key.uid) is None:  # deleted within the moment
            self._drop_aliases(model, found.spec.number)
            raise checks.no_version(name, version)

    def delete_alias(
        self, caller: Identity, name: str, alias: str, *, once: Once | None = None
    ) -> None:
        """Remove an alias. One that is not there is no error.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is no such model.
        """

        def change(spec: RegisteredModelSpec) -> RegisteredModelSpec:
            return replace(spec, aliases=_without(spec.aliases, alias))

        self._change_model(caller, name, change, once)

    def by_alias(self, org: str, name: str, alias: str) -> ModelVersion:
        """The version that an alias points to.

        Raises:
            NotFound: There is no such model or alias.
        """
        model = self.find(org, name)
        number = model.spec.aliases.get(alias)
        if number is None:
            shown = alias[:80]
            raise NotFound(
                f"the model {name[:80]!r} has no alias {shown!r}", field="alias", value=shown
            )
        return self.version(org, name, number)

    # ---- versions

    def create_version(
        self,
        caller: Identity,
        name: str,
        version_spec: ModelVersionSpec,
        *,
        once: Once | None = None,
    ) -> ModelVersion:
        """Add a version. The model gives it the next number.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A field is wrong.
            NotFound: There is no such model.
            QuotaExceeded: The organisation has as many versions as it may have.
        """
        permit(caller, Operation.RUN_JOBS)
        checks.check_source(version_spec.source)
        checks.check_description(version_spec.description)
        for field, text in (("run_id", version_spec.run), ("run_link", version_spec.run_link)):
            check_value(field, text, checks.LONGEST_SOURCE)
        tags = self._check_tags(checks.check_tags(version_spec.tags))
        self._records.check(MODEL_VERSION, caller.org, "model versions", version_spec)
        if gone := self._refer(caller.org, [version_spec.source]):
            raise common.refuse("source", gone[:80], "a checkpoint that is not being removed")
        # The mark of the request goes with the number: a request that is repeated takes none.
        model = self._change_model(
            caller, name, lambda spec: replace(spec, last_version=spec.last_version + 1), once
        )
        number = model.spec.last_version
        record = self._store.create(
            MODEL_VERSION,
            org=caller.org,
            name=_record_name(model, number),
            owner=caller.user,
            spec=replace(version_spec, model=model.spec.id, number=number, tags=tags),
            status=RunStatus(),
            now=self._clock(),
        )
        if self._store.get(REGISTERED_MODEL, model.key.uid) is None:  # deleted within the moment
            self._store.delete(MODEL_VERSION, record.key.uid, fence=None)
            raise checks.no_model(name)
        return describe_version(record, model)

    def version(self, org: str, name: str, version: object) -> ModelVersion:
        """A version.

        Raises:
            NotFound: There is no such model or version.
        """
        model = self.find(org, name)
        text = str(version)
        record = None
        if text.isascii() and text.isdigit() and len(text) < 12:
            record = self._store.find(MODEL_VERSION, org, _record_name(model, int(text)))
        if record is None:
            raise checks.no_version(name, version)
        return describe_version(record, model)

    def update_version(
        self,
        caller: Identity,
        name: str,
        version: object,
        description: object,
        *,
        once: Once | None = None,
    ) -> ModelVersion:
        """Describe a version anew.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The description is too long.
            NotFound: There is no such version.
        """
        text = checks.check_description(description)
        return self._change_version(
            caller, name, version, lambda spec: replace(spec, description=text), once
        )

    def tag_version(
        self,
        caller: Identity,
        name: str,
        version: object,
        tags: Mapping[str, object],
        removed: Sequence[str] = (),
        *,
        once: Once | None = None,
    ) -> None:
        """Set and remove tags of a version.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A tag is wrong, or there are too many.
            NotFound: There is no such version.
        """
        checked = checks.check_tags(tags)

        def change(spec: ModelVersionSpec) -> ModelVersionSpec:
            return replace(spec, tags=self._check_tags(with_tags(spec.tags, checked, removed)))

        self._change_version(caller, name, version, change, once)

    def set_stage(
        self,
        caller: Identity,
        name: str,
        version: object,
        stage: object,
        *,
        archive: bool = False,
        once: Once | None = None,
    ) -> ModelVersion:
        """Bring a version to a stage; with ``archive``, the others of that stage are archived.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: There is no such stage, or it has none to archive.
            NotFound: There is no such version.
        """
        new_stage = checks.check_stage("stage", stage)
        if archive and new_stage not in (Stage.STAGING, Stage.PRODUCTION):
            allowed = "false, or the stages Staging and Production"
            raise common.refuse("archive_existing_versions", True, allowed)
        self.version(caller.org, name, version)
        # The first write uses up the request, so that a repeated one does not even take a number.
        number = self._change_model(
            caller, name, lambda spec: replace(spec, last_promotion=spec.last_promotion + 1), once
        ).spec.last_promotion

        def promote(spec: ModelVersionSpec) -> ModelVersionSpec:
            return replace(spec, stage=new_stage, promotion=number)

        changed = self._change_version(caller, name, version, promote, None)
        if archive and self._archive_others(changed.record, number):
            # A later promotion came between: this one is as if it had come before that.
            self._archive(changed.record.key.uid, number)
            return self.version(caller.org, name, version)
        return changed

    def _archive_others(self, kept: VersionRecord, number: int) -> bool:
        """Archive the other versions in the stage of one, but those that came there by a later
        promotion than that of this number. Returns whether there are such.
        """
        match = Match(tags=(stage_tag(kept.spec.model, kept.spec.stage),))
        after, is_later = None, False
        while True:
            page = self._store.list(
                MODEL_VERSION, org=kept.key.org, match=match, after=after, limit=1000
            )
            for line in page.items:
                if line.key.uid != kept.key.uid:
                    is_later |= not self._archive(line.key.uid, number)
            if (after := page.next) is None:
                return is_later

    def _archive(self, uid: str, number: int) -> bool:
        """Archive a version; false, and it stays, if it came to its stage by a later promotion."""

        def archive(spec: ModelVersionSpec) -> ModelVersionSpec:
            if spec.promotion > number or spec.stage not in (Stage.STAGING, Stage.PRODUCTION):
                return spec
            return replace(spec, stage=Stage.ARCHIVED)

        try:
            changed = self._store.change_spec(MODEL_VERSION, uid, archive, now=self._clock())
        except NotFound:  # deleted within the moment
            return True
        return changed.spec.promotion <= number

    def delete_version(
        self, caller: Identity, name: str, version: object, *, once: Once | None = None
    ) -> None:
        """Forget a version, and the aliases that point to it. Its number is not given again.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is no such version.
        """
        permit(caller, Operation.RUN_JOBS)
        model = self.find(caller.org, name)
        found = self.version(caller.org, name, version).record
        uid = found.key.uid
        self._drop_aliases(model, found.spec.number)
        self._store.request_delete(MODEL_VERSION, uid, now=self._clock(), once=once)
        self._store.delete(MODEL_VERSION, uid, fence=None)
        self._drop_aliases(model, found.spec.number)  # one that was set within the moment

    def _drop_aliases(self, model: ModelRecord, number: int) -> None:
        """Remove the aliases of a version."""

        def drop(spec: RegisteredModelSpec) -> RegisteredModelSpec:
            gone = [alias for alias, other in spec.aliases.items() if other == number]
            return replace(spec, aliases=_without(spec.aliases, *gone))

        with contextlib.suppress(NotFound):  # the model is deleted within the moment
            self._store.change_spec(REGISTERED_MODEL, model.key.uid, drop, now=self._clock())

    def _change_version(
        self,
        caller: Identity,
        name: str,
        version: object,
        change: Callable[[ModelVersionSpec], ModelVersionSpec],
        once: Once | None,
    ) -> ModelVersion:
        permit(caller, Operation.RUN_JOBS)
        before = self.version(caller.org, name, version)
        uid, now = before.record.key.uid, self._clock()
        changed = self._store.change_spec(MODEL_VERSION, uid, change, now=now, once=once)
        return replace(before, record=changed)


def _record_name(model: ModelRecord, number: int) -> str:
    return f"{model.spec.id}-{number}"


def _without(there: Mapping[str, int], *gone: str) -> dict[str, int]:
    return {key: value for key, value in there.items() if key not in gone}
