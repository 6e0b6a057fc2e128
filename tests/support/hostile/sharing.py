"""Attacks by what processes share: memory, queues, keys, sockets."""

import ctypes
import os

from support.hostile.attack import UNFILTERED, attack
from support.hostile.runner import A, call, found, libc, read


@attack(
    "Read System V shared memory of others",
    refused="EINVAL EIDRM EPERM ENOENT EACCES",
    landlock=False,
)
def attach_shared_memory() -> None:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(A["shared_memory"], None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    found(ctypes.string_at(address, 64))


@attack("Read a message queue of others", refused="ENOENT EPERM EACCES ENOSYS", landlock=False)
def open_a_queue() -> None:
    os.close(call(240, A["queue"].encode(), 0, 0, 0))


@attack("Read shared memory of others (/dev/shm)", refused="ENOENT EPERM EACCES", landlock=False)
def read_dev_shm() -> None:
    read(A["dev_shm"])


@attack("Read a key of others from the kernel's keyrings", refused="EPERM ENOSYS EACCES")
def read_a_key() -> None:
    buffer = ctypes.create_string_buffer(64)
    call(250, 11, A["key"], buffer, 64)
    found(buffer.raw)


@attack("Leave a key that later jobs find", refused="EPERM ENOSYS")
def leave_a_key() -> None:
    call(248, b"user", b"cloudml-probe", b"x", 1, -4)


@attack(
    "Connect to a service's socket in the file system",
    refused="ENOENT EACCES EPERM",
    landlock=False,
)
def connect_to_a_socket() -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(A["socket"])


@attack("Have the spawner run something as anybody", refused="ENOENT EACCES EPERM")
def order_from_the_spawner() -> None:
    import json
    import socket

    os.chdir(os.path.dirname(A["spawner_socket"]))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.basename(A["spawner_socket"]))
        try:
            with open("spawner.token") as file:
                token = file.read()
        except OSError:
            token = ""
        client.sendall(json.dumps({"token": token}).encode() + b"\n")
        if not json.loads(client.makefile().readline())["ok"]:
            raise PermissionError(13, "refused")


@attack(
    "Connect to a service of the machine that has a name but no file (abstract sockets)",
    refused="EPERM ECONNREFUSED",
)
def connect_to_an_abstract_socket() -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + A["abstract"])


@attack("Connect to another job's abstract socket", refused="EPERM ECONNREFUSED")
def connect_to_anothers_abstract_socket() -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + A["neighbours_abstract"])


@attack(
    "List the machine's connections by asking the kernel (NETLINK_SOCK_DIAG)",
    refused="EPERM",
    control=UNFILTERED,
)
def ask_for_all_connections() -> None:
    import socket

    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
