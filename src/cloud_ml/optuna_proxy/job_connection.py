"""How a proxy in a job reaches the server: at the address and with the token of MLflow's client."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_ml.errors import Unavailable
from cloud_ml.sdk.config import Connection, TokenCredentials, check_encrypted
from cloud_ml.sdk.endpoint import parse_endpoint

_JOB, _URI, _TOKEN = "CLOUDML_JOB_ID", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"
_OWN = ("CLOUDML_TOKEN", "CLOUDML_ACCESS_KEY")
_PREFIX, _PATH = "cmj1.", "/mlflow"


def is_in_job(environment: Mapping[str, str]) -> bool:
    """Whether this is a process of a job."""
    return bool(environment.get(_JOB))


def connection_of_job(environment: Mapping[str, str]) -> Connection | None:
    """The way of a job to its server; ``None`` outside of a job, and where a key or a token is set.

    Raises:
        Unavailable: The job has no token, or no way to the server. Says why.
    """
    if not is_in_job(environment) or any(environment.get(name) for name in _OWN):
        return None
    uri, token = environment.get(_URI, ""), environment.get(_TOKEN, "")
    if not token.startswith(_PREFIX):
        why = (
            "it sets variables whose names begin with MLFLOW_TRACKING_"
            if uri or token
            else "its network leads to no server (engine.network is none), or the server gives none"
        )
        raise Unavailable(
            f"This job has no token for the proxy: {why}.",
            hint="Run a job for each trial with `cloudml hp submit`, or the proxy on your machine.",
        )
    endpoint = parse_endpoint(uri.removesuffix(_PATH))
    check_encrypted(endpoint)
    return Connection(endpoint, TokenCredentials(token, "of the job"))
