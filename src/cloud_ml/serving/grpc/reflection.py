"""gRPC's server reflection: which services there are and what their messages look like, for
tools like grpcurl.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor

from cloud_ml.serving.grpc.messages import parse_message
from cloud_ml.serving.grpc.streams import MOST_UNREAD, GrpcStream, StreamMethod, Talk
from cloud_ml.serving.protos import files, message, pool

_NOT_FOUND, _UNIMPLEMENTED = 5, 12


class Reflection:
    """Answers for one version of the protocol, ``v1`` or ``v1alpha``: they differ in their
    package only.
    """

    def __init__(self, generation: str, services: Sequence[str]) -> None:
        self.package = f"grpc.reflection.{generation}"
        self._services = services

    def methods(self) -> dict[str, StreamMethod]:
        """Its only method, by path."""
        return {
            f"/{self.package}.ServerReflection/ServerReflectionInfo": lambda stream: _Talk(
                self, stream
            )
        }

    def answer(self, body: bytes) -> bytes:
        """The answer to one question."""
        request = parse_message(f"{self.package}.ServerReflectionRequest", body)
        made = message(f"{self.package}.ServerReflectionResponse")(
            valid_host=request.host, original_request=request
        )
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            for name in self._services:
                made.list_services_response.service.add(name=name)
        elif kind in ("file_by_filename", "file_containing_symbol"):
            self._file(kind, getattr(request, kind), made)
        elif kind == "all_extension_numbers_of_type" and _is_known(
            request.all_extension_numbers_of_type
        ):
            made.all_extension_numbers_response.base_type_name = (
                request.all_extension_numbers_of_type
            )
        else:
            _refuse(
                made,
                _UNIMPLEMENTED if kind is None else _NOT_FOUND,
                "there is no such extension or question",
            )
        return bytes(made.SerializeToString())

    def _file(self, kind: str, name: str, made: Any) -> None:
        try:
            find = pool().FindFileByName if kind == "file_by_filename" else _file_of_symbol
            found = find(name)
        except KeyError:
            _refuse(made, _NOT_FOUND, f"{name!r} is not known here")
            return
        for each in _with_imports(found):
            made.file_descriptor_response.file_descriptor_proto.append(each.serialized_pb)


class _Talk(Talk):
    unread_bytes = MOST_UNREAD  # and one answer, which repeats the question

    def __init__(self, reflection: Reflection, stream: GrpcStream) -> None:
        self._reflection = reflection
        self._stream = stream

    def receive(self, body: bytes) -> None:
        self._stream.send(self._reflection.answer(body))

    def ended(self) -> None:
        self._stream.finish()


def _file_of_symbol(name: str) -> descriptor.FileDescriptor:
    """The file that has a symbol.

    Raises:
        KeyError: where no file has it.
    """
    file = _members().get(name)
    return (
        pool().FindFileByName(file) if file is not None else pool().FindFileContainingSymbol(name)
    )


@cache
def _members() -> dict[str, str]:
    """Files by the symbols that the pool does not find: methods, and values of enums below the
    enum's own name.

    protobuf's scope of a value is that of its enum; tools also ask for it as a member of the enum.
    """
    found: dict[str, str] = {}
    for file in files().file:
        for service in file.service:
            for method in service.method:
                found[f"{file.package}.{service.name}.{method.name}"] = file.name
        scopes: list[tuple[str, Any]] = [(file.package, file)]
        while scopes:
            scope, described = scopes.pop()
            for enum in described.enum_type:
                found |= {f"{scope}.{enum.name}.{value.name}": file.name for value in enum.value}
            nested = described.message_type if described is file else described.nested_type
            scopes += [(f"{scope}.{each.name}", each) for each in nested]
    return found


def _with_imports(file: descriptor.FileDescriptor) -> list[descriptor.FileDescriptor]:
    """A file and what it needs, so that one answer is enough."""
    found: dict[str, descriptor.FileDescriptor] = {}
    todo = [file]
    while todo:
        each = todo.pop()
        if each.name not in found:
            found[each.name] = each
            todo.extend(each.dependencies)
    return list(found.values())


def _is_known(name: str) -> bool:
    try:
        pool().FindMessageTypeByName(name)
    except KeyError:
        return False
    return True


def _refuse(made: Any, code: int, why: str) -> None:
    made.error_response.error_code, made.error_response.error_message = code, why
