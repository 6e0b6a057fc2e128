"""Frameworks: what is ready, and making one ready before a job asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from cloud_ml.domain.tenancy import Operation
from cloud_ml.engines.abilities import Runtimes, RuntimeState
from cloud_ml.engines.base import Engine
from cloud_ml.errors import CloudMlError, Conflict, InvalidRequest, NotFound
from cloud_ml.models import codec
from cloud_ml.models.jobs.framework import PreparationLine, Runtime
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.offload import Offload


class FrameworkRuntimes:
    """What callers may ask about runtimes; an engine without the capability shows what the
    catalogue lists.
    """

    def __init__(
        self, engine: Engine, catalog: Catalog, store: StateStore, offload: Offload
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._store = store
        self._offload = offload

    async def list(self) -> Sequence[Runtime]:
        """Every runtime, by framework, in the order of the catalogue's versions."""
        if not isinstance(self._engine, Runtimes):
            listed = self._catalog.listing().items()
            return [
                Runtime(name=name, version=version)
                for name, versions in listed
                for version in versions
            ]
        known = {(one.name, one.version): one for one in await self._engine.runtimes()}
        order = [
            (name, version)
            for name, versions in self._catalog.listing().items()
            for version in versions
        ]
        return [_to_wire(known[key]) for key in order if key in known]

    async def of(self, framework: str) -> Sequence[Runtime]:
        """The runtimes of one framework, named as users do.

        Raises:
            NotFound: There is no such framework; the message names near ones.
        """
        if (why := self._catalog.refusal(framework, None)) is not None:
            raise NotFound(
                why, field="framework", value=framework, allowed=", ".join(self._catalog.listing())
            )
        name = framework.strip().lower()
        return [one for one in await self.list() if name == one.name or name in one.aliases]

    async def prepare(
        self, caller: Identity, framework: str, version: str | None, *, once: Once | None = None
    ) -> AsyncIterator[PreparationLine]:
        """Install a runtime on the server; what happens, line by line.

        Raises:
            Forbidden: The caller does not run the platform.
            NotFound: There is no such framework.
            InvalidRequest: There is no such version, or the engine cannot prepare.
            Unauthenticated: ``once`` was seen before.
        """
        engine = self._able(caller, framework, version)
        await self.of(framework)
        await self._use_up(once)
        return self._lines(engine, framework, version)

    async def remove(
        self, caller: Identity, framework: str, version: str | None, *, once: Once | None = None
    ) -> None:
        """Remove what was installed of a runtime; the next job that needs it installs it again.

        Raises:
            Conflict: A job that lives uses it.
            Unauthenticated: ``once`` was seen before.
        """
        engine = self._able(caller, framework, version)
        await self._use_up(once)
        if not await engine.remove_runtime(framework, version):
            raise Conflict(
                f"{framework} {version or ''}".strip()
                + " is used by a job that is not over: nothing was removed",
                hint="try again when `cloudml jobs list` shows no job of it",
            )

    async def _lines(
        self, engine: Runtimes, framework: str, version: str | None
    ) -> AsyncIterator[PreparationLine]:
        try:
            async for line in engine.prepare_runtime(framework, version):
                yield PreparationLine(message=line)
        except CloudMlError as error:
            yield PreparationLine(message=error.message, error=error.message)
            return
        chosen = [one for one in await self.of(framework) if _means(one, version)]
        yield PreparationLine(message="ready", runtime=chosen[0] if chosen else None)

    async def _use_up(self, once: Once | None) -> None:
        if once is not None:
            await self._offload(self._store.remember, once)

    def _able(self, caller: Identity, framework: str, version: str | None) -> Runtimes:
        permit(caller, Operation.MANAGE_PLATFORM)
        for field, value, requested_version in (
            ("framework", framework, None),
            ("version", version, version),
        ):
            if (why := self._catalog.refusal(framework, requested_version)) is not None:
                kind = NotFound if field == "framework" else InvalidRequest
                allowed = self._catalog.listing().get(framework, ())
                raise kind(
                    why,
                    field=field,
                    value=value,
                    allowed=", ".join(allowed or self._catalog.listing()),
                )
        if not isinstance(self._engine, Runtimes):
            raise InvalidRequest(
                "this server's engine makes runtimes when a job needs them, and not before"
            )
        return self._engine


def _means(runtime: Runtime, version: str | None) -> bool:
    import fnmatch  # noqa: PLC0415 - at the end of a preparation

    if version is None:
        return runtime.default
    return version == runtime.version or any(
        fnmatch.fnmatchcase(version, each) for each in runtime.accepts
    )


def _to_wire(state: RuntimeState) -> Runtime:
    return codec.decode(Runtime, codec.encode(state))
