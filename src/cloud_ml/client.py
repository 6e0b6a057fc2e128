# Made of aio/client.py by tools/twins.py: change that one, then run `make format`.
"""The Python SDK.

::

    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.jobs.train_job import TrainJob

    with CloudMlClient() as client:
        job = client.submit_train_job(TrainJob("linear", "trainer.task", "./linear"))
        for chunk in job.logs(follow=True):
            sys.stdout.buffer.write(chunk)
        if not job.wait().succeeded:
            print(job.job.message)

Importing this module is cheap: what talks to the network is imported where it is first used.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cloud_ml.errors import NotFound
from cloud_ml.sdk.jobs.train_jobs import TrainJobs
from cloud_ml.sdk.models.deploying import ModelServices
from cloud_ml.sdk.server import ServerCalls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloud_ml.models.jobs.train_job import TrainJob
    from cloud_ml.models.resource import NewResource, ResourceType, ResourceView
    from cloud_ml.sdk.admin.access_tokens import AccessTokens
    from cloud_ml.sdk.admin.calls import Admin
    from cloud_ml.sdk.admin.quota import Quota
    from cloud_ml.sdk.config import Connection
    from cloud_ml.sdk.experiments import Experiments
    from cloud_ml.sdk.logged_run import LoggedRun
    from cloud_ml.sdk.model_registry import ModelRegistry
    from cloud_ml.sdk.resources import Resources
    from cloud_ml.sdk.runs import Runs
    from cloud_ml.sdk.secrets import Secrets
    from cloud_ml.sdk.storage.client import Storage
    from cloud_ml.sdk.studies import Studies
    from cloud_ml.sdk.study_handle import StudyHandle
    from cloud_ml.sdk.tensorboards import TensorBoards
    from cloud_ml.sdk.transport import Transport

NewT = TypeVar("NewT", bound="NewResource")
ViewT = TypeVar("ViewT", bound="ResourceView")


class CloudMlClient(TrainJobs, ModelServices, ServerCalls):
    """Asks a Cloud ML server with an access key or an access token. Safe to use from several threads.

    What is not given is taken from ``CLOUDML_ENDPOINT``, ``CLOUDML_ACCESS_KEY`` and
    ``CLOUDML_SECRET_KEY`` (or ``CLOUDML_TOKEN``), then from the user's settings
    (``~/.config/cloudml/config.json``).

    Args:
        access_key: Names the caller.
        secret_key: Signs for the caller; never leaves this machine.
        endpoint: Such as ``https://cloudml.example.com``.
        token: An access token in place of a key; see ``cloudml token create``. It is sent over TLS
            or loopback only.
        context: A context of the settings other than the current one.

    Every method that asks the server may raise, besides what it lists:

    - ``TransportError``: the server cannot be reached, or something else answers in its place;
    - ``Unauthenticated``, ``Forbidden``: the key is wrong, or may not do this;
    - ``Unavailable``, ``OutOfSpace``: asking again later may succeed; it was asked a few times
      already.

    Raises:
        InvalidRequest: There is no key and no token, half of a key, both, or the endpoint is
            malformed.
        NotFound: There is no such context.
    """

    def __init__(
        self,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
    ) -> None:
        from cloud_ml.sdk import config

        self._connection: Connection = config.resolve(
            endpoint=endpoint,
            access_key=access_key,
            secret_key=secret_key,
            token=token,
            context=context,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r}, {self._connection.credentials.shown})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept open; the client stays usable."""
        self._transport.close()

    def for_org(self, org: str) -> Self:
        """A client for what another organisation has, also a disabled one: for administrators.

        It reads, cancels, stops and deletes. All else is refused: it creates and changes nothing.
        For that, use a client with a key of the organisation. It shares the connections of this
        client.

        Args:
            org: The organisation's name or number.

        Raises:
            NotFound: There is none, or it is another than the caller's, who is no administrator.
        """
        try:
            number = self.admin.describe_org(org).org_id
        except NotFound as error:
            from cloud_ml.sdk.failures import no_such_org

            raise no_such_org(error) from error
        # Not a copy: it would have this client's parts, which ask about its own organisation.
        other = object.__new__(type(self))
        other._connection = self._connection
        other._transport = self._transport.for_org(number)
        return other

    @property
    def endpoint(self) -> str:
        """The server's address."""
        return str(self._connection.endpoint)

    @cached_property
    def storage(self) -> Storage:
        """Buckets and objects."""
        from cloud_ml.sdk.storage.client import Storage

        return Storage(self._transport)

    @cached_property
    def admin(self) -> Admin:
        """Organisations, users, keys and the audit log, for those who manage them."""
        from cloud_ml.sdk.admin.calls import Admin

        return Admin(self._transport)

    @cached_property
    def tokens(self) -> AccessTokens:
        """Access tokens, for programs that have no SDK."""
        from cloud_ml.sdk.admin.access_tokens import AccessTokens

        return AccessTokens(self._transport)

    @cached_property
    def quota(self) -> Quota:
        """Limits of the organisation, what is used of them, and applications for more."""
        from cloud_ml.sdk.admin.quota import Quota

        return Quota(self._transport)

    @cached_property
    def secrets(self) -> Secrets:
        """Values that jobs get and nobody is shown."""
        from cloud_ml.sdk.secrets import Secrets

        return Secrets(self._transport)

    @cached_property
    def runs(self) -> Runs:
        """Jobs as runs, and runs without a job: found by metrics, parameters and tags."""
        from cloud_ml.sdk.runs import Runs

        return Runs(self._transport)

    @cached_property
    def experiments(self) -> Experiments:
        """Groups of runs: waited for until their runs have ended, and watched."""
        from cloud_ml.sdk.experiments import Experiments

        return Experiments(self._transport)

    @cached_property
    def model_registry(self) -> ModelRegistry:
        """Models that runs have logged, and registered models with their versions."""
        from cloud_ml.sdk.model_registry import ModelRegistry

        return ModelRegistry(self._transport)

    @cached_property
    def studies(self) -> Studies:
        """Searches for the arguments with which a job does best."""
        from cloud_ml.sdk.studies import Studies

        return Studies(self._transport, self._with_trainer_sent)

    @cached_property
    def tensorboards(self) -> TensorBoards:
        """TensorBoards on folders, jobs and studies."""
        from cloud_ml.sdk.tensorboards import TensorBoards

        return TensorBoards(self._transport)

    def run(
        self,
        name: str,
        *,
        experiment: str | None = None,
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> LoggedRun:
        """A run without a job, to which a block of code logs.

        Args:
            name: Its name. Several runs may have one name.
            experiment: The name of its experiment, which is made if there is none.
            params: Its parameters.
            tags: Its tags.
        """
        from cloud_ml.sdk.logged_run import LoggedRun

        return LoggedRun(self.runs, name, experiment=experiment, params=params, tags=tags)

    def create_study(
        self, name: str, job: TrainJob, space: Mapping[str, Any] | None = None, **options: Any
    ) -> StudyHandle:
        """Submit a study: many runs of a job with different parameters. Returns it to hold on to.

        Args:
            name: Its name. The name of the job does not count.
            job: What each trial runs.
            space: The parameters by their names.
            **options: Those of ``client.studies.submit``, such as ``objective``, ``algorithm``,
                ``stopper``, ``parallel`` and ``max_trials``.

        Raises:
            InvalidRequest: A field is wrong, or the local code cannot be packed.
            AlreadyExists: There is a study of that name.
            TypeError: There is no such option, or the job is not a ``TrainJob``.
        """
        from dataclasses import replace
        from inspect import signature

        from cloud_ml.models.fields import check_options, check_type
        from cloud_ml.models.jobs.train_job import TrainJob
        from cloud_ml.models.studies.study import STUDY_ALIASES
        from cloud_ml.sdk.study_handle import StudyHandle

        check_type(job, TrainJob)
        known = signature(self.studies.submit).parameters
        check_options("create_study", options, known, STUDY_ALIASES)
        study = self.studies.submit(replace(job, job_name=name), space, **options)
        return StudyHandle(self.studies, study)

    def get_study(self, name: str) -> StudyHandle:
        """A study to hold on to, by name or uid.

        Raises:
            NotFound: There is none.
        """
        from cloud_ml.sdk.study_handle import StudyHandle

        return StudyHandle(self.studies, self.studies.describe(name))

    def resources(self, described: ResourceType[NewT, ViewT]) -> Resources[NewT, ViewT]:
        """The resources of a kind, by its description."""
        from cloud_ml.sdk.resources import Resources

        return Resources(self._transport, described)

    @cached_property
    def _transport(self) -> Transport:
        from cloud_ml.sdk.transport import Transport

        return Transport(self._connection.endpoint, self._connection.credentials)
