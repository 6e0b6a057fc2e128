"""The system-call filter, run by a small interpreter of classic BPF."""

from __future__ import annotations

import struct

import pytest

from cloud_ml.engines.local.isolation import seccomp

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
HIGH = 1 << 32


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would make of a call."""
    own, _ = MACHINES[machine]
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack(
        "=IIQ6Q", number, architecture or own, 0, *(one & 0xFFFFFFFFFFFFFFFF for one in padded)
    )
    program = seccomp.program(machine)
    assert program is not None
    code = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"an unknown operation: {operation:#x}")


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def column(machine: str) -> int:
    return MACHINES[machine][1]


def test_every_call_of_the_list_is_refused_whatever_its_arguments(machine: str) -> None:
    for name, numbers in seccomp._DENIED.items():
        if (number := numbers[column(machine)]) >= 0:
            assert verdict(machine, number) == verdict(machine, number, -1, -1, -1) == EPERM, name


def test_ordinary_calls_pass(machine: str) -> None:
    # read, write, openat, mmap, futex, execve, exit_group, prctl, kill, wait4, getrandom
    ordinary = {
        "x86_64": (0, 1, 257, 9, 202, 59, 231, 157, 62, 61, 318),
        "aarch64": (63, 64, 56, 222, 98, 221, 94, 167, 129, 260, 278),
    }[machine]
    assert {verdict(machine, number, 1, 2, 3) for number in ordinary} == {ALLOW}


def test_nothing_but_the_list_and_the_special_calls_is_refused(machine: str) -> None:
    listed = {numbers[column(machine)] for numbers in seccomp._DENIED.values()}
    special = {seccomp._CLONE3[column(machine)], seccomp._FALLOCATE[column(machine)]}
    refused = {number for number in range(600) if verdict(machine, number) != ALLOW}
    assert refused == {number for number in listed if number >= 0} | special


def test_room_cannot_be_taken_at_once(machine: str) -> None:
    assert verdict(machine, seccomp._FALLOCATE[column(machine)]) == 0x00050000 | 95, (
        "EOPNOTSUPP, not EPERM"
    )


def test_another_architecture_is_killed(machine: str) -> None:
    for other in (0x40000003, 0x40000028, 0):  # i386, arm, none
        assert verdict(machine, 1, architecture=other or 1) == KILL


def test_x32_calls_are_killed() -> None:
    assert verdict("x86_64", 0x40000000 | 101) == KILL
    assert verdict("x86_64", 0x40000000) == KILL


def test_clone3_does_not_exist_so_that_the_library_falls_back(machine: str) -> None:
    assert verdict(machine, seccomp._CLONE3[column(machine)]) == ENOSYS


@pytest.mark.parametrize(
    "flag",
    [
        0x10000000,
        0x20000000,
        0x40000000,
        0x08000000,
        0x04000000,
        0x02000000,
        0x00020000,
        0x00000080,
    ],
    ids=["user", "pid", "net", "ipc", "uts", "cgroup", "mount", "time"],
)
def test_clone_makes_no_namespaces(machine: str, flag: int) -> None:
    clone, threads = seccomp._CLONE[column(machine)], 0x003D0F00
    assert verdict(machine, clone, flag | 17) == EPERM
    assert verdict(machine, clone, flag | threads) == EPERM
    assert verdict(machine, clone, 17) == verdict(machine, clone, threads) == ALLOW


def test_nothing_is_typed_into_terminals(machine: str) -> None:
    ioctl = seccomp._IOCTL[column(machine)]
    for command in (0x5412, 0x541C):
        assert verdict(machine, ioctl, 0, command) == EPERM
        assert verdict(machine, ioctl, 0, command | HIGH) == EPERM, "the kernel drops the high half"
    assert verdict(machine, ioctl, 0x5412, 0x5413) == ALLOW, "it is the second argument that counts"


def test_no_file_changes_its_project(machine: str) -> None:
    ioctl = seccomp._IOCTL[column(machine)]
    assert verdict(machine, ioctl, 0, 0x401C5820) == EPERM
    assert verdict(machine, ioctl, 0, 0x801C581F) == ALLOW, "to read the project is harmless"
    assert verdict(machine, seccomp._DENIED["file_setattr"][column(machine)]) == EPERM


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        (0, ALLOW),
        (1, ALLOW),
        (2, ALLOW),
        (10, ALLOW),
        (3, EPERM),
        (17, EPERM),
        (30, EPERM),
        (38, EPERM),
        (40, EPERM),
    ],
)
def test_socket_families(machine: str, family: int, answer: int) -> None:
    assert verdict(machine, seccomp._SOCKET[column(machine)], family, 1, 0) == answer
    assert verdict(machine, seccomp._SOCKET[column(machine)], family, 1, 4) == answer, (
        "protocols are for netlink"
    )


@pytest.mark.parametrize(
    ("protocol", "answer"), [(0, ALLOW), (20, ALLOW), (4, EPERM), (9, EPERM), (16, EPERM)]
)
def test_the_kernel_is_asked_about_routes_and_rdma_only(
    machine: str, protocol: int, answer: int
) -> None:
    assert verdict(machine, seccomp._SOCKET[column(machine)], 16, 3, protocol) == answer


def test_limits_are_set_for_oneself_only(machine: str) -> None:
    prlimit = seccomp._PRLIMIT[column(machine)]
    assert verdict(machine, prlimit, 0, 7) == ALLOW
    assert verdict(machine, prlimit, 0x4711, 7) == EPERM
    assert verdict(machine, prlimit, HIGH, 7) == ALLOW, "the kernel drops the high half"


@pytest.mark.parametrize(
    ("mode", "answer"),
    [(0o020666, EPERM), (0o060600, EPERM), (0o010600, ALLOW), (0o100600, ALLOW), (0o600, ALLOW)],
)
def test_mknodat_makes_no_devices(machine: str, mode: int, answer: int) -> None:
    assert verdict(machine, seccomp._MKNODAT[column(machine)], 0, 0, mode) == answer


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp.program("riscv64") is None


def test_jumps_are_short_enough_and_the_program_is_not_too_long(machine: str) -> None:
    program = seccomp.program(machine)
    assert program is not None
    assert len(program) // 8 <= 4096
