# Made of aio/models/deploying.py by tools/twins.py: change that one, then run `make format`.
"""What the client can do with model services. ``CloudMlClient`` has these methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import JobEvent
    from cloud_ml.models.server import WhoAmI
    from cloud_ml.models.services.model_service import ModelService
    from cloud_ml.models.services.service import (
        Service,
        ServiceChange,
        ServiceMetrics,
        ServiceSummary,
    )
    from cloud_ml.sdk.jobs.calls import JobCalls
    from cloud_ml.sdk.models.handles import ServiceHandle
    from cloud_ml.sdk.models.predicting import Inputs, Predictions
    from cloud_ml.sdk.models.services import ServiceCalls
    from cloud_ml.sdk.progress import Progress
    from cloud_ml.sdk.storage.client import Storage
    from cloud_ml.sdk.transport import Transport


class ModelServices:
    """Model services, by name and version."""

    if TYPE_CHECKING:

        @cached_property
        def storage(self) -> Storage: ...
        @cached_property
        def _transport(self) -> Transport: ...
        @cached_property
        def _jobs(self) -> JobCalls: ...
        def whoami(self) -> WhoAmI: ...

    def create_model_service(
        self, model_service: ModelService, *, progress: Progress | None = None
    ) -> ServiceHandle:
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
        sent = self._with_model_sent(model_service, progress)
        return self._service_handle(self._services.create(sent))

    def get_model_service(self, name: str, version: str) -> ServiceHandle:
        """A service to hold on to.

        Raises:
            NotFound: There is none.
        """
        return self._service_handle(self._services.get(name, version))

    def describe_model_service(self, name: str, version: str) -> Service:
        """A service as it stands.

        Raises:
            NotFound: There is none.
        """
        return self._services.get(name, version)

    def list_model_services(
        self, *, name: str | None = None, limit: int | None = None
    ) -> Generator[ServiceSummary]:
        """Services, newest first, fetched as they are iterated over; with ``name`` all versions
        of one model.
        """
        return self._services.all(name=name, limit=limit)

    def watch_model_services(self, *, after: int | None = None) -> Generator[ServiceChange]:
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
        from cloud_ml.models.services.service import ServiceChange
        from cloud_ml.sdk.watching import follow_stream

        return follow_stream(self._services.watch, ServiceChange, ("service", "gone"), after=after)

    def update_model_service(self, name: str, version: str, **changes: Any) -> Service:
        """Change fields of a service (``replicas=2``); replicas are replaced one after the other
        where they have to be.

        With ``canary=10`` what would replace them is tried on so many percent of calls, until it is
        promoted or rolled back.

        Raises:
            NotFound: There is none.
            InvalidRequest: A field is wrong, or there is none of that name.
        """
        from cloud_ml.sdk.models.handles import make_update

        change = make_update(changes)
        if change.model_uri and "://" not in change.model_uri:
            change.model_uri = self._sent_model(change.model_uri, None)
        return self._services.update(name, version, change)

    def promote_model_service(
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
        return self._services.promote(name, version, release=release)

    def rollback_model_service(
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
        return self._services.rollback(name, version, release=release)

    def start_model_service(self, name: str, version: str) -> Service:
        """Start a saved or stopped service.

        Raises:
            NotFound: There is none.
        """
        return self._services.start(name, version)

    def stop_model_service(self, name: str, version: str, *, grace: str | None = None) -> Service:
        """End every replica of a service, which stays and can be started again.

        ``grace`` is the time between SIGTERM and SIGKILL, such as ``30s`` or ``0``.

        Raises:
            NotFound: There is none.
        """
        return self._services.stop(name, version, grace=grace)

    def delete_model_service(self, name: str, version: str) -> Service:
        """Ask for a service's removal: its replicas end, and then its name and version are free.

        Raises:
            NotFound: There is none.
        """
        return self._services.delete(name, version)

    def model_service_events(self, name: str, version: str, *, after: int = 0) -> list[JobEvent]:
        """What happened to a service, in order; only what came after the event with the id
        ``after``.

        Raises:
            NotFound: There is none.
        """
        return self._services.events(name, version, after=after)

    def model_service_metrics(self, name: str, version: str) -> ServiceMetrics:
        """What the replicas of a service use now, and what they were asked since they started.

        Raises:
            NotFound: There is none.
        """
        return self._services.metrics(name, version)

    def model_service_logs(
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
    ) -> Generator[bytes]:
        """The output of a replica in chunks; see ``ServiceHandle.logs``.

        Raises:
            NotFound: There is no such service.
            InvalidRequest: There is no such replica.
        """
        service = self.get_model_service(name, version)
        chosen = service.logs(
            replica=replica,
            previous=previous,
            follow=follow,
            lines=lines,
            attempt=attempt,
            timestamps=timestamps,
        )
        with closing(chosen) as chunks:
            yield from chunks

    def predict(
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
        """Ask a model; see ``ServiceHandle.predict``. Who asks often keeps a handle.

        Raises:
            NotFound: There is no such service.
            InvalidRequest: The inputs do not fit; the message says what would.
            Unavailable: The service has no address, or no replica answers now.
        """
        service = self.get_model_service(name, version)
        return service.predict(
            inputs, types=types, signature=signature, grpc=grpc, release=release, timeout=timeout
        )  # fmt: skip

    def predictions(self, address: str, name: str) -> Predictions:
        """A model at an address (``host:port``), to be asked without a look at its service."""
        from cloud_ml.sdk.models.predicting import Predictions

        return Predictions(self._transport.credentials, address, name)

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
    def _services(self) -> ServiceCalls:
        from cloud_ml.sdk.models.services import ServiceCalls

        return ServiceCalls(self._transport)

    def _service_handle(self, service: Service) -> ServiceHandle:
        from cloud_ml.sdk.models.handles import ServiceHandle

        return ServiceHandle(self._services, service)

    def _with_model_sent(self, service: ModelService, progress: Progress | None) -> ModelService:
        if "://" in service.model_uri:
            return service
        return dataclasses.replace(service, model_uri=self._sent_model(service.model_uri, progress))

    def _sent_model(self, source: str, progress: Progress | None) -> str:
        """The URI of a model from this machine, or from the outputs of a job, once the server
        has it.
        """
        from cloud_ml.sdk.jobs.output_paths import output_source, refuse_other_uri

        refuse_other_uri(source)
        bucket = self.whoami().default_bucket
        output = output_source(source)
        if output is None:
            return self.storage.send_model(source, bucket, progress=progress)
        from cloud_ml.sdk.jobs.outputs import copy_model

        return copy_model(self._jobs, self.storage, output, bucket)
