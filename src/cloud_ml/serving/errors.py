"""What can go wrong with a request, and how gRPC and HTTP call it.

One class for each way out, so that every front says the same thing of the same mistake.
Codes: https://grpc.github.io/grpc/core/md_doc_statuscodes.html; the HTTP statuses are TensorFlow
Serving's (tensorflow_serving/util/net_http and model_servers/http_rest_api_util: INVALID_ARGUMENT
is 400, and so on).
"""

from cloud_ml.net.errors import BadRequest, ServingError, TooLarge

__all__ = [
    "CODES",
    "BadRequest",
    "LoadFailed",
    "ModelFailed",
    "ModelNotFound",
    "NotNow",
    "NotReady",
    "Overloaded",
    "ServingError",
    "TooLarge",
    "TooLate",
    "Unsupported",
]

CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""Names of gRPC's status codes, by number."""


class ModelNotFound(ServingError):
    """No such model, version, label or signature."""

    grpc, http = 5, 404


class NotReady(ServingError):
    """The model is known but no version of it can answer."""

    grpc, http = 14, 503


class LoadFailed(NotReady):
    """No version of the model could be loaded, and no further try is made unless its files
    change.
    """


class Overloaded(ServingError):
    """The queue of this model is full: said at once, so that the caller can go elsewhere."""

    grpc, http = 8, 429


class TooLate(ServingError):
    """The caller's deadline passed before the model ran."""

    grpc, http = 4, 504


class Unsupported(ServingError):
    """The method, encoding or operation is not one that this server has."""

    grpc, http = 12, 501


class NotNow(ServingError):
    """The state of the server does not allow this operation: it was not started with it."""

    grpc, http = 9, 400


class ModelFailed(ServingError):
    """The model itself raised."""

    grpc, http = 13, 500
