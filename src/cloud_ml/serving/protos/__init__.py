"""The messages of every protocol, from descriptors that are made once (``make format``).

They live in a pool of their own: in the default pool TensorFlow's and tritonclient's files of the
same packages would clash with these as soon as a model brings them into the process.
"""

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@cache
def files() -> descriptor_pb2.FileDescriptorSet:
    """Every file that this server speaks, with what it imports."""
    return descriptor_pb2.FileDescriptorSet.FromString(
        resources.files(__package__).joinpath("descriptors.bin").read_bytes()
    )


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """The files, linked."""
    made = descriptor_pool.DescriptorPool()
    for each in files().file:
        made.Add(each)
    return made


@cache
def message(name: str) -> Any:
    """The class of a message by its full name, such as ``tensorflow.serving.PredictRequest``."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))
