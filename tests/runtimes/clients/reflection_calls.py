"""grpcio-reflection's client: services, and names that the server's reflection does not know, as
JSON.
"""

import json
import sys
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)


def names_of(service: Any) -> set[str]:
    """Methods of a service, and all that their messages are made of."""
    names, seen = set(), set()
    for method in service.methods:
        names.add(method.full_name)
        todo = [method.input_type, method.output_type]
        while todo:
            kind = todo.pop()
            if kind.full_name in seen:
                continue
            seen.add(kind.full_name)
            names |= {kind.full_name, *(field.full_name for field in kind.fields)}
            for enum in (
                *kind.enum_types,
                *(field.enum_type for field in kind.fields if field.enum_type),
            ):
                names |= {
                    enum.full_name,
                    *(f"{enum.full_name}.{value.name}" for value in enum.values),
                }
            todo += [field.message_type for field in kind.fields if field.message_type]
    return names


channel = grpc.insecure_channel(sys.argv[1])
services = list(ProtoReflectionDescriptorDatabase(channel).get_services())
unknown, calls = [], 0
for service in services:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    for name in sorted(names_of(pool.FindServiceByName(service))):
        calls += 1
        try:
            ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol(name)
        except KeyError:
            unknown.append(name)
print(json.dumps({"services": services, "asked": calls, "unknown": unknown}))
