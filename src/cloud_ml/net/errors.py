"""Errors of requests that every protocol can answer with; the model server adds its own."""


class ServingError(Exception):
    """The answer to a request is no. ``grpc`` is the gRPC status code, ``http`` the HTTP status."""

    grpc = 2
    http = 500

    @property
    def message(self) -> str:
        """What happened, in a sentence for who asked."""
        return str(self.args[0]) if self.args else type(self).__name__


class BadRequest(ServingError):
    """The request cannot be meant: a wrong shape, type, name of an input, document."""

    grpc, http = 3, 400


class TooLarge(ServingError):
    """A message is larger than the server takes."""

    grpc, http = 8, 413
