"""What the client can do with model services. ``AsyncCloudMlClient`` has these methods."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloud_ml.aio.jobs.calls import AsyncJobCalls
    from cloud_ml.aio.models.handles import AsyncServiceHandle
    from cloud_ml.aio.models.predicting import AsyncPredictions, Inputs
    from cloud_ml.aio.models.services import AsyncServiceCalls
    from cloud_ml.aio.storage.client import AsyncStorage
    from cloud_ml.aio.transport import AsyncTransport
    from cloud_ml.models.jobs.job import JobEvent
    from cloud_ml.models.server import WhoAmI
    from cloud_ml.models.services.model_service import ModelService
    from cloud_ml.models.services.service import (
        Service,
        ServiceChange,
        ServiceMetrics,
        ServiceSummary,
    )
    from cloud_ml.sdk.progress import Progress


class AsyncModelServices:
    """Model services, by name and version."""

    if TYPE_CHECKING:

        @cached_property
        def storage(self) -> AsyncStorage: ...
        @cached_property
        def _transport(self) -> AsyncTransport: ...
        @cached_property
        def _jobs(self) -> AsyncJobCalls: ...
        async def whoami(self) -> WhoAmI: ...

    async def create_model_service(
        self, model_service: ModelService, *, progress: Progress | None = None
    ) -> AsyncServiceHandle:
        """Serve a model. A ``model_uri`` that is a local folder is uploaded first; ``progress`` is
        told how far it is.

        ``JOB:PATH`` names a file or folder among the outputs of a job. It is copied, so that the
        model outlives the job. A folder of numbered versions is taken as it is; one that holds a
        model becomes version 1. When this returns, the server has the service on disk; ``wait`` of
        the handle waits until it answers.

        Raises:
            InvalidRequest: A field is wrong, or the folder holds no model; names field and value.
            AlreadyExists: Name and version are taken; ``same_spec`` tells whether by an equal
                service.
        """
        from cloud_ml.models.fields import check_type
        from cloud_ml.models.services.model_service import ModelService

        check_type(model_service, ModelService)
        model_service.validate()
        sent = await self._with_model_sent(model_service, progress)
        return self._service_handle(await self._services.create(sent))

    async def get_model_service(self, name: str, version: str) -> AsyncServiceHandle:
        """A service to hold on to.

        Raises:
            NotFound: There is none.
        """
        return self._service_handle(await self._services.get(name, version))

    async def describe_model_service(self, name: str, version: str) -> Service:
        """A service as it stands.

        Raises:
            NotFound: There is none.
        """
        return await self._services.get(name, version)

    def list_model_services(
        self, *, name: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[ServiceSummary]:
        """Services, newest first, fetched as they are iterated over; with ``name`` all versions
        of one model.
        """
        return self._services.all(name=name, limit=limit)

    def watch_model_services(self, *, after: int | None = None) -> AsyncGenerator[ServiceChange]:
        """Every change of every model service of the organisation as it happens, for as long as one
        iterates.

        Who is slow is told the newest state of what changed, not each step. Cut connections are
        made anew.

        Args:
            after: Begin behind this revision of a change; otherwise now.

        Raises:
            StartAgain: The server's database was restored from a backup since: list the services,
                and watch anew.
        """
        from cloud_ml.aio.watching import follow_stream
        from cloud_ml.models.services.service import ServiceChange

        return follow_stream(self._services.watch, ServiceChange, ("service", "gone"), after=after)

    async def update_model_service(self, name: str, version: str, **changes: Any) -> Service:
        """Change fields of a service (``replicas=2``); replicas are replaced one after the other
        where they have to be.

        With ``canary=10`` what would replace them is tried on so many percent of calls, until it is
        promoted or rolled back.

        Raises:
            NotFound: There is none.
            InvalidRequest: A field is wrong, or there is none of that name.
        """
        from cloud_ml.aio.models.handles import make_update

        change = make_update(changes)
        if change.model_uri and "://" not in change.model_uri:
            change.model_uri = await self._sent_model(change.model_uri, None)
        return await self._services.update(name, version, change)

    async def promote_model_service(
        self, name: str, version: str, *, release: int | None = None
    ) -> Service:
        """Serve the candidate of a service from now on, rolled out one replica after the other.

        Args:
            name: Of the model.
            version: Of the service.
            release: The number of the candidate; no other one is promoted then.

        Raises:
            NotFound: There is no such service.
            Conflict: There is no candidate, it is another one, or it does not answer.
        """
        return await self._services.promote(name, version, release=release)

    async def rollback_model_service(
        self, name: str, version: str, *, release: int | None = None
    ) -> Service:
        """Drop the candidate of a service; where there is none, serve what was served before.

        Args:
            name: Of the model.
            version: Of the service.
            release: The number of the release that is to go; no other one goes then.

        Raises:
            NotFound: There is no such service.
            Conflict: There is nothing to go back to.
        """
        return await self._services.rollback(name, version, release=release)

    async def start_model_service(self, name: str, version: str) -> Service:
        """Start a saved or stopped service.

        Raises:
            NotFound: There is none.
        """
        return await self._services.start(name, version)

    async def stop_model_service(
        self, name: str, version: str, *, grace: str | None = None
    ) -> Service:
        """End every replica of a service, which stays and can be started again.

        ``grace`` is the time between SIGTERM and SIGKILL, such as ``30s`` or ``0``.

        Raises:
            NotFound: There is none.
        """
        return await self._services.stop(name, version, grace=grace)

    async def delete_model_service(self, name: str, version: str) -> Service:
        """Ask for a service's removal: its replicas end, and then its name and version are free.

        Raises:
            NotFound: There is none.
        """
        return await self._services.delete(name, version)

    async def model_service_events(
        self, name: str, version: str, *, after: int = 0
    ) -> list[JobEvent]:
        """What happened to a service, in order; only what came after the event with the id
        ``after``.

        Raises:
            NotFound: There is none.
        """
        return await self._services.events(name, version, after=after)

    async def model_service_metrics(self, name: str, version: str) -> ServiceMetrics:
        """What the replicas of a service use now, and what they were asked since they started.

        Raises:
            NotFound: There is none.
        """
        return await self._services.metrics(name, version)

    async def model_service_logs(
        self,
        name: str,
        version: str,
        *,
        replica: int | None = None,
        previous: bool = False,
        follow: bool = False,
        lines: int | None = None,
        attempt: int | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """The output of a replica in chunks; see ``AsyncServiceHandle.logs``.

        Raises:
            NotFound: There is no such service.
            InvalidRequest: There is no such replica.
        """
        service = await self.get_model_service(name, version)
        chosen = service.logs(
            replica=replica,
            previous=previous,
            follow=follow,
            lines=lines,
            attempt=attempt,
            timestamps=timestamps,
        )
        async with aclosing(chosen) as chunks:
            async for chunk in chunks:
                yield chunk

    async def predict(
        self,
        name: str,
        version: str,
        inputs: Inputs,
        *,
        types: Mapping[str, str] | None = None,
        signature: str | None = None,
        grpc: bool = False,
        release: str | None = None,
        timeout: float = 60.0,
    ) -> Any:
        """Ask a model; see ``AsyncServiceHandle.predict``. Who asks often keeps a handle.

        Raises:
            NotFound: There is no such service.
            InvalidRequest: The inputs do not fit; the message says what would.
            Unavailable: The service has no address, or no replica answers now.
        """
        service = await self.get_model_service(name, version)
        return await service.predict(
            inputs, types=types, signature=signature, grpc=grpc, release=release, timeout=timeout
        )  # fmt: skip

    def predictions(self, address: str, name: str) -> AsyncPredictions:
        """A model at an address (``host:port``), to be asked without a look at its service."""
        from cloud_ml.aio.models.predicting import AsyncPredictions

        return AsyncPredictions(self._transport.credentials, address, name)

    def model_token(self, seconds: float = 3600, *, service: str = "") -> str:
        """A token that opens the model services of the organisation for so long; made here, without
        the server.

        With ``service``, as ``name/version``, it opens only that one.

        Raises:
            InvalidRequest: ``service`` is no such text.
        """
        from cloud_ml.sdk.models.inference import token_for

        return token_for(self._transport.credentials, seconds, service=service)

    @cached_property
    def _services(self) -> AsyncServiceCalls:
        from cloud_ml.aio.models.services import AsyncServiceCalls

        return AsyncServiceCalls(self._transport)

    def _service_handle(self, service: Service) -> AsyncServiceHandle:
        from cloud_ml.aio.models.handles import AsyncServiceHandle

        return AsyncServiceHandle(self._services, service)

    async def _with_model_sent(
        self, service: ModelService, progress: Progress | None
    ) -> ModelService:
        if "://" in service.model_uri:
            return service
        return dataclasses.replace(
            service, model_uri=await self._sent_model(service.model_uri, progress)
        )

    async def _sent_model(self, source: str, progress: Progress | None) -> str:
        """The URI of a model from this machine, or from the outputs of a job, once the server
        has it.
        """
        from cloud_ml.sdk.jobs.output_paths import output_source, refuse_other_uri

        refuse_other_uri(source)
        bucket = (await self.whoami()).default_bucket
        output = output_source(source)
        if output is None:
            return await self.storage.send_model(source, bucket, progress=progress)
        from cloud_ml.aio.jobs.outputs import copy_model

        return await copy_model(self._jobs, self.storage, output, bucket)
