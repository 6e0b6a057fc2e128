"""TensorFlow's messages of graphs, for a reader beside ours: protobuf's own parser, without
TensorFlow.

The fields are those of ``tensorflow/core/framework`` and ``protobuf/meta_graph.proto``;
``make test-runtimes`` compares them with the messages of an installed TensorFlow.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cloud_ml.serving import protos

PACKAGE = "tensorflow"
MESSAGES: dict[str, str] = {
    "ListValue": "2 *s bytes, 3 *i int64, 4 *f float, 5 *b bool, 6 *type DataType, 7 *shape "
    "TensorShapeProto, 8 *tensor TensorProto, 9 *func NameAttrList",
    "AttrValue": "2 s bytes oneof, 3 i int64 oneof, 4 f float oneof, 5 b bool oneof, 6 type "
    "DataType oneof, 7 shape TensorShapeProto oneof, 8 tensor TensorProto oneof, 1 list ListValue "
    "oneof, 10 func NameAttrList oneof, 9 placeholder string oneof",
    "NameAttrList": "1 name string, 2 *attr AttrEntry",
    "AttrEntry": "1 key string, 2 value AttrValue",
    "NodeDef": "1 name string, 2 op string, 3 *input string, 4 device string, 5 *attr AttrEntry",
    "ArgDef": "1 name string, 3 type DataType",
    "OpDef": "1 name string, 2 *input_arg ArgDef, 3 *output_arg ArgDef",
    "RetEntry": "1 key string, 2 value string",
    "FunctionDef": "1 signature OpDef, 5 *attr AttrEntry, 3 *node_def NodeDef, 4 *ret RetEntry",
    "FunctionDefLibrary": "1 *function FunctionDef",
    "GraphDef": "1 *node NodeDef, 2 library FunctionDefLibrary",
    "MetaInfoDef": "4 *tags string",
    "MetaGraph": "1 meta_info_def MetaInfoDef, 2 graph_def GraphDef",
    "Saved": "2 *meta_graphs MetaGraph",
}
"""Messages: the number, name and type of each field; a star for fields that repeat. ``…Entry``
are those of maps.
"""
_TYPES = {"bytes": 12, "int64": 3, "float": 2, "bool": 8, "string": 9}
_MESSAGE, _ENUM = 11, 14


def fields(name: str) -> list[tuple[int, str, str, bool, bool]]:
    """Number, name, type, whether it repeats and whether it is one of several."""
    made = []
    for text in MESSAGES[name].split(", "):
        number, label, kind, *oneof = text.split()
        made.append(
            (int(number), label.removeprefix("*"), kind, label.startswith("*"), bool(oneof))
        )
    return made


@cache
def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"{PACKAGE}.of_graphs.{name}")
    )


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for each in protos.files().file:
        pool.Add(each)
    file = descriptor_pb2.FileDescriptorProto(
        name="graphs.proto", package=f"{PACKAGE}.of_graphs", syntax="proto3"
    )
    file.dependency.append("tensorflow.proto")
    for name in MESSAGES:
        made = file.message_type.add(name=name)
        for number, field, kind, repeated, one_of in fields(name):
            added = made.field.add(name=field, number=number, label=3 if repeated else 1)
            added.type = _TYPES.get(kind, _ENUM if kind == "DataType" else _MESSAGE)
            if kind not in _TYPES:
                added.type_name = (
                    f".{PACKAGE}.of_graphs.{kind}" if kind in MESSAGES else f".{PACKAGE}.{kind}"
                )
            if one_of:
                added.oneof_index = 0
        if any(field[4] for field in fields(name)):
            made.oneof_decl.add(name="value")
    pool.Add(file)
    return pool
