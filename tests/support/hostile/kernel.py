"""Attacks on the kernel's own doors: /proc, devices, namespaces, and system calls that few
programs need.
"""

import ctypes
import os

from support.hostile.attack import NOTHING, UNFILTERED, attack
from support.hostile.runner import A, call, libc, opened

_CLOSED = "ENOENT EACCES EPERM EROFS"


@attack("Have the kernel restart the machine (sysrq-trigger)", refused=_CLOSED)
def open_sysrq() -> None:
    opened("/proc/sysrq-trigger", os.O_WRONLY)


@attack("Read the machine's memory (/proc/kcore)", refused=_CLOSED)
def open_kcore() -> None:
    opened("/proc/kcore")


@attack("Learn where the kernel is (/proc/kallsyms)", refused=_CLOSED)
def learn_addresses() -> str:
    with open("/proc/kallsyms") as symbols:
        return "done" if int(symbols.readline().split()[0], 16) else "EPERM"


@attack("Read the kernel's messages", refused=_CLOSED)
def read_messages() -> None:
    call(103, 3, ctypes.create_string_buffer(64), 64)


@attack("Say where core dumps go (core_pattern)", refused=_CLOSED)
def set_the_core_pattern() -> None:
    opened("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attack("Change settings of the kernel", refused=_CLOSED)
def change_a_setting() -> None:
    opened("/proc/sys/vm/overcommit_memory", os.O_WRONLY)


@attack("Change the machine's routes and addresses (/proc/sys/net)", refused=_CLOSED)
def change_the_network() -> None:
    opened("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY)


@attack("Open a disk of the machine", refused=_CLOSED)
def open_a_disk() -> None:
    opened(A["disk"])


@attack("Make a device of one's own for a disk", refused=_CLOSED)
def make_a_device() -> None:
    import stat

    os.mknod("disk", stat.S_IFBLK | 0o600, A["disk_number"])
    os.unlink("disk")


@attack("Open the machine's memory (/dev/mem, /dev/kmsg)", refused=_CLOSED)
def open_kmsg() -> None:
    opened("/dev/kmsg", os.O_WRONLY)


@attack("Mount something", refused=_CLOSED)
def mount_something() -> None:
    call(272, 0x00020000)
    libc.mount(None, b"/", None, 0x44000, None)  # private, so that nobody sees it
    os.mkdir("mounted")
    call(165, b"tmpfs", b"mounted", b"tmpfs", 0, 0)


@attack("Make a user namespace and be root in it", refused="EPERM", control=UNFILTERED)
def be_root_in_a_namespace() -> None:
    call(272, 0x10000000)


@attack("Make a user namespace with clone", refused="EPERM", control=UNFILTERED)
def clone_into_a_namespace() -> None:
    pid = libc.syscall(ctypes.c_long(56), ctypes.c_ulong(0x10000000 | 17), 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")


@attack(
    "Make a user namespace with clone3, whose flags no filter can read",
    refused="ENOSYS",
    control=UNFILTERED,
)
def clone3_into_a_namespace() -> None:
    arguments = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17)
    pid = libc.syscall(ctypes.c_long(435), arguments, ctypes.sizeof(arguments))
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")


@attack("Join the namespaces of a process outside (setns)", refused=_CLOSED + " ESRCH")
def join_a_namespace() -> None:
    folder = os.open("/proc/{}/ns/uts".format(A["server"]), os.O_RDONLY)
    call(308, folder, 0)


@attack("Change the root folder (chroot)", refused=_CLOSED)
def change_the_root() -> None:
    os.chroot(".")


@attack("Load a program into the kernel (bpf)", refused=_CLOSED)
def make_a_bpf_map() -> None:
    attributes = (ctypes.c_uint32 * 16)(2, 4, 4, 1)
    call(321, 0, attributes, ctypes.sizeof(attributes))


@attack("Watch the processors (perf_event_open)", refused=_CLOSED)
def watch_the_processors() -> None:
    attributes = (ctypes.c_uint32 * 32)(1, 128)
    call(298, attributes, -1, 0, -1, 0)


@attack("Handle page faults for the kernel (userfaultfd)", refused=_CLOSED)
def handle_page_faults() -> None:
    call(323, 0)


@attack("Go around the filter of system calls (io_uring)", refused=_CLOSED)
def make_a_ring() -> None:
    call(425, 4, (ctypes.c_uint32 * 30)())


@attack(
    "Go around the filter of system calls by the entry of 32-bit programs (int 0x80)",
    refused="SIGSYS",
    control=UNFILTERED,
)
def enter_as_32_bits() -> str:
    import mmap

    # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
    code = b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return "done" if ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid() else "another number"


@attack("Go around the filter of system calls by the x32 numbers", refused="SIGSYS", control="")
def enter_as_x32() -> None:
    call(0x40000000 | 39)


@attack("Turn off what makes addresses hard to guess (personality)", refused=_CLOSED)
def change_the_personality() -> None:
    call(135, 0x0040000)


@attack("Open files by number, past all folders (open_by_handle_at)", refused=_CLOSED)
def name_a_handle() -> None:
    handle = (ctypes.c_uint32 * 40)(128)
    call(303, -100, b"/", handle, ctypes.byref(ctypes.c_int()), 0)


@attack("Watch all files of the machine (fanotify)", refused=_CLOSED, control=NOTHING)
def watch_all_files() -> None:
    call(300, 0, 0)


@attack("Change quotas of the disk (quotactl)", refused=_CLOSED, control=UNFILTERED)
def ask_for_quotas() -> str:
    try:
        call(179, 0x80000100, 0, 0, 0)
    except OSError as error:
        return "done" if error.errno not in (1,) else "EPERM"
    return "done"


@attack("Speak with the hypervisor (AF_VSOCK)", refused=_CLOSED + " EAFNOSUPPORT")
def open_a_vsock() -> None:
    import socket

    socket.socket(40, socket.SOCK_STREAM)


@attack("Read everybody's packets (AF_PACKET)", refused=_CLOSED)
def read_packets() -> None:
    import socket

    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


@attack("Send packets with made-up heads (raw sockets)", refused=_CLOSED)
def open_a_raw_socket() -> None:
    import socket

    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)


@attack(
    "Reach seldom used parts of the kernel by odd kinds of sockets",
    refused=_CLOSED,
    control=UNFILTERED,
)
def open_odd_sockets() -> str:
    """Any kind beyond local ones, the internet's and the routing table's, that this kernel lets
    be asked for.
    """
    import errno
    import socket

    worst = "EPERM"
    for family in (*range(3, 10), *range(11, 16), *range(17, 48)):
        try:
            socket.socket(family, socket.SOCK_DGRAM).close()
        except OSError as error:
            if error.errno != errno.EPERM:
                worst = "done"
        else:
            worst = "done"
    return worst
