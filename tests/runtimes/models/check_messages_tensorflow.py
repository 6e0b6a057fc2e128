"""Print as JSON how TensorFlow declares the fields of its messages. Standard input names the
messages.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from tensorflow.core.protobuf import saved_model_pb2

SCALARS = {12: "bytes", 3: "int64", 2: "float", 8: "bool", 9: "string"}


def type_of(field):
    if field.type in SCALARS:
        return SCALARS[field.type]
    named = field.message_type or field.enum_type
    return named.full_name if named else ""


def fields(path):
    """The fields of a message that is found from ``SavedModel`` by the names of fields."""
    found = saved_model_pb2.SavedModel.DESCRIPTOR
    for name in path.split("."):
        found = found.fields_by_name[name].message_type if name else found
    return {
        field.name: [
            field.number,
            type_of(field),
            bool(field.is_repeated),
            field.containing_oneof is not None,
        ]
        for field in found.fields
    }


def main():
    print(json.dumps({path: fields(path) for path in json.load(sys.stdin)}))


if __name__ == "__main__":
    main()
