"""The variables by which MLflow's client in a job finds this server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cloud_ml.usecases.access.job_tokens import JobTokens

AttemptVariables = Callable[[str, int], Mapping[str, str]]
"""The variables of an attempt, by the uid and the number."""
_URI, _TOKEN = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"
_ANY = "MLFLOW_TRACKING_"
_NO_TELEMETRY = {"MLFLOW_DISABLE_TELEMETRY": "true"}
"""MLflow's client tells its makers what it is used for, from a thread of its own. That thread changes
the environment, and requests that read it in that moment fail: ``KeyError``.
"""


def tracking_variables(address: Callable[[], str], tokens: JobTokens) -> AttemptVariables:
    """Address and token of the MLflow endpoint; nothing where jobs have no way to it.

    Args:
        address: ``HOST:PORT`` at which jobs find the server; empty if they do not.
        tokens: Makes the token.
    """

    def variables(job_uid: str, attempt: int) -> Mapping[str, str]:
        found = address()
        token = tokens.make(job_uid, attempt) if found else ""
        if not token:
            return {}
        return {_URI: f"http://{found}/mlflow", _TOKEN: token, **_NO_TELEMETRY}

    return variables


def sets_tracking(names: Collection[str]) -> bool:
    """Whether a user has set where MLflow's client logs. A token of ours must not go there."""
    return any(name.startswith(_ANY) for name in names)
