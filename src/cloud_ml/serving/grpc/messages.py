"""Methods that take one message and give one: what all of them share."""

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.service import Method
from cloud_ml.serving.protos import message, pool

Handler = Callable[[GrpcCall, Any], Any]
"""Answers a message with a message, or with None where it replies itself, later."""


def parse_message(name: str, data: Received) -> Any:
    """A message of this full name.

    Raises:
        BadRequest: where the bytes are none.
    """
    try:
        return message(name).FromString(data)
    except DecodeError as error:
        raise BadRequest(f"the message is no {name.rpartition('.')[2]}: {error}") from error


def reply(call: GrpcCall, made: Any) -> None:
    """Answer with a message."""
    data = made.SerializeToString(deterministic=True)
    call.reply((data,), len(data))


def methods_of(service: str, handlers: Mapping[str, Handler]) -> dict[str, Method]:
    """The methods of a service that the descriptors know, by path."""
    described = pool().FindServiceByName(service)
    return {
        f"/{service}/{name}": _method(
            described.FindMethodByName(name).input_type.full_name, handler
        )
        for name, handler in handlers.items()
    }


def _method(message_type: str, handler: Handler) -> Method:
    def method(call: GrpcCall, body: Received) -> None:
        made = handler(call, parse_message(message_type, body[5:]))
        if made is not None:
            reply(call, made)

    return method
