"""Attacks on processes: the server's, the engine's, other tenants', and one's own limits."""

import ctypes
import os
import signal

from support.hostile.attack import NOTHING, STRANGER, UNFILTERED, attack
from support.hostile.runner import A, call, found, opened, read

_UNSEEN = "ESRCH ENOENT EACCES EPERM"


@attack("Send a signal to the server", refused=_UNSEEN)
def signal_the_server() -> None:
    os.kill(A["server"], 0)


@attack("Stop the spawner", refused=_UNSEEN)
def signal_the_spawner() -> None:
    os.kill(A["spawner"], signal.SIGCONT)


@attack("Send a signal to another tenant's job", refused=_UNSEEN)
def signal_a_neighbour() -> None:
    os.kill(A["neighbour"], 0)


@attack("Send a signal to everybody", refused=_UNSEEN, control=NOTHING)
def signal_everybody() -> str:
    """Signal 0 to all that may be sent one: who could be reached is asked one by one, so that no
    harm is done.
    """
    reached = []
    for pid in (A["server"], A["spawner"], A["neighbour"]):
        try:
            os.kill(pid, 0)
            reached.append(pid)
        except OSError:
            pass
    return "done" if reached else "ESRCH"


@attack("See the server's processes by number", refused=_UNSEEN, landlock=False)
def see_the_server() -> None:
    opened("/proc/{}/status".format(A["server"]))


@attack("Read the server's environment", refused=_UNSEEN)
def read_the_servers_environment() -> None:
    opened("/proc/{}/environ".format(A["server"]))


@attack("Read another job's environment", refused=_UNSEEN)
def read_anothers_environment() -> None:
    read("/proc/{}/environ".format(A["neighbour"]))


@attack("Read the server's memory through /proc", refused=_UNSEEN + " EIO")
def read_the_servers_memory() -> None:
    with open("/proc/{}/mem".format(A["server"]), "rb", 0) as memory:
        memory.seek(A["address"])
        found(memory.read(64))


@attack("Go through the root of a process that is outside (/proc/PID/root)", refused=_UNSEEN)
def go_through_anothers_root() -> None:
    read("/proc/{}/root{}".format(A["server"], A["work"]))


@attack("Go through the root of the first process (/proc/1/root)", refused=_UNSEEN)
def go_through_the_first_root() -> None:
    read("/proc/1/root" + A["work"])


@attack("Open a file that another process has open (/proc/PID/fd)", refused=_UNSEEN)
def open_anothers_descriptor() -> None:
    read("/proc/{}/fd/{}".format(A["server"], A["descriptor"]))


@attack("Trace a process (ptrace)", refused=_UNSEEN)
def trace_the_victim() -> None:
    call(101, 0x4206, A["victim"], 0, 0)  # PTRACE_SEIZE


@attack("Trace another process of one's own job (ptrace)", refused="EPERM", control=UNFILTERED)
def trace_ones_own() -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        call(101, 0x4206, pid, 0, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@attack("Copy the server's memory (process_vm_readv)", refused=_UNSEEN)
def copy_the_servers_memory() -> None:
    buffer = ctypes.create_string_buffer(64)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
    there = (ctypes.c_size_t * 2)(A["address"], 64)
    call(310, A["server"], here, 1, there, 1, 0)
    found(buffer.raw)


@attack("Take a descriptor out of another process (pidfd_getfd)", refused=_UNSEEN)
def take_a_descriptor() -> None:
    pidfd = call(434, A["server"], 0)
    os.set_blocking(call(438, pidfd, A["descriptor"], 0), True)


@attack("Read or set limits of another process (prlimit)", refused=_UNSEEN)
def change_anothers_limits() -> None:
    limit = (ctypes.c_uint64 * 2)()
    call(302, A["server"], 7, 0, limit)


@attack("Slow down another process of the same user (setpriority)", refused=_UNSEEN, landlock=False)
def slow_down_another() -> None:
    os.setpriority(os.PRIO_PROCESS, A["victim"], 5)


@attack("Have another process killed first when memory is short (oom_score_adj)", refused=_UNSEEN)
def offer_another_to_the_oom_killer() -> None:
    opened("/proc/{}/oom_score_adj".format(A["server"]), os.O_WRONLY)


@attack("Be spared when memory is short (oom_score_adj)", refused=_UNSEEN)
def be_spared_by_the_oom_killer() -> None:
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("-500")


@attack("Go before all others (a negative nice value)", refused="EPERM EACCES")
def go_first() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, -10)


@attack("Raise one's own limits (setrlimit)", refused="EPERM ValueError")
def raise_ones_limits() -> str:
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    except ValueError:
        return "ValueError"
    return "done"


@attack("Become root (setuid)", refused="EPERM EINVAL")
def become_root() -> None:
    os.setresuid(0, 0, 0)
    with open("/proc/self/status") as status:
        if "CapEff:\t0000000000000000" in status.read():
            raise PermissionError(1, "a root without rights")


@attack("Become another tenant (setuid)", refused="EPERM EINVAL")
def become_another_tenant() -> None:
    os.setresuid(A["other_uid"], A["other_uid"], A["other_uid"])


@attack("Give up groups that are denied something (setgroups)", refused="EPERM")
def change_groups() -> None:
    os.setgroups([])


@attack(
    "Run a program that makes its caller root (set-user-id)",
    refused="kept ENOENT EACCES",
    control=STRANGER,
)
def run_a_setuid_program() -> str:
    import subprocess

    output = subprocess.run([A["setuid"], "-u"], stdout=subprocess.PIPE).stdout
    return "done" if output.strip() == b"0" and os.getuid() != 0 else "kept"


@attack("Give a file of one's own capabilities", refused="EPERM ENOTSUP EACCES")
def give_a_file_capabilities() -> None:
    with open("capable", "w"):
        pass
    capability = b"\x01\x00\x00\x02" + (1 << 7).to_bytes(4, "little") + bytes(12)
    os.setxattr("capable", "security.capability", capability)


@attack(
    "Make control groups, of which the machine has a bounded number", refused=_UNSEEN + " EROFS"
)
def make_control_groups() -> None:
    with open("/proc/self/cgroup") as lines:
        own = {line.split(":")[1]: line.strip().split(":", 2)[2] for line in lines}
    above = (
        "/sys/fs/cgroup/memory" + own["memory"] if "memory" in own else "/sys/fs/cgroup" + own[""]
    )
    made = above.rstrip("/") + "/cloudml-attack-" + str(os.getpid())
    os.mkdir(made)
    os.rmdir(made)


@attack("Lift one's own limits in control groups", refused=_UNSEEN + " EROFS")
def lift_ones_limits() -> None:
    with open("/proc/self/cgroup") as lines:
        own = {line.split(":")[1]: line.strip().split(":", 2)[2] for line in lines}
    if "memory" in own:
        opened("/sys/fs/cgroup/memory" + own["memory"] + "/memory.limit_in_bytes", os.O_WRONLY)
    else:
        opened("/sys/fs/cgroup" + own[""] + "/cgroup.procs", os.O_WRONLY)


@attack("Move to a control group without limits", refused=_UNSEEN + " EROFS")
def leave_the_control_group() -> None:
    path = "/sys/fs/cgroup/memory/cgroup.procs"
    opened(path if os.path.exists(path) else "/sys/fs/cgroup/cgroup.procs", os.O_WRONLY)
