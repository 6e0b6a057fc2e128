"""Attacks on files: the platform's, other tenants', the machine's."""

import os

from support.hostile.attack import attack
from support.hostile.runner import A, opened, read

_ABSENT = "ENOENT EACCES EPERM EROFS"


@attack("Read the database", refused=_ABSENT)
def read_the_database() -> None:
    read(A["database"])


@attack("Read the administrator's key", refused=_ABSENT)
def read_the_keys() -> None:
    read(A["keys"])


@attack("Read or make the engine's own records: claims, reports, wishes to stop", refused=_ABSENT)
def write_the_ledger() -> None:
    opened(A["ledger"] + "/probe", os.O_WRONLY | os.O_CREAT)
    os.unlink(A["ledger"] + "/probe")


@attack("Forge the report of another job's end", refused=_ABSENT)
def forge_a_report() -> None:
    opened(A["reports"] + "/probe", os.O_WRONLY | os.O_CREAT)
    os.unlink(A["reports"] + "/probe")


@attack("Change the log of another tenant's job", refused=_ABSENT)
def rewrite_anothers_log() -> None:
    opened(A["log"], os.O_WRONLY | os.O_APPEND)


@attack("Read the working folder of another tenant's job", refused=_ABSENT)
def read_anothers_work() -> None:
    read(A["work"])


@attack("Read the temporary folder of another tenant's job", refused=_ABSENT)
def read_anothers_temporary_files() -> None:
    read(A["temporary"])


@attack("Read the log of another tenant's job", refused=_ABSENT)
def read_anothers_log() -> None:
    read(A["log"])


@attack("See which jobs there are", refused=_ABSENT)
def list_the_jobs() -> None:
    os.listdir(A["jobs"])


@attack("Read another tenant's bucket", refused=_ABSENT)
def read_anothers_bucket() -> None:
    read(A["bucket"] + "/model")


@attack("Write to another tenant's bucket", refused=_ABSENT)
def write_anothers_bucket() -> None:
    opened(A["bucket"] + "/model", os.O_WRONLY | os.O_APPEND)


@attack("Reach another tenant's file by a link of one's own", refused=_ABSENT)
def follow_a_link() -> None:
    link = "{}-{}".format(os.path.abspath("link"), os.getpid())
    os.symlink(A["work"], link)
    read(link)


@attack("Give another tenant's file a name in one's own folder", refused=_ABSENT + " EXDEV")
def link_anothers_file() -> None:
    os.link(A["work"], "hard")
    os.unlink("hard")


@attack("Write to layers of packages that all tenants share", refused=_ABSENT)
def poison_a_layer() -> None:
    opened(A["layer"] + "/module.py", os.O_WRONLY | os.O_APPEND)


@attack("Write to the cache that all tenants' packages come from", refused=_ABSENT)
def poison_the_cache() -> None:
    opened(A["cache"] + "/probe", os.O_WRONLY | os.O_CREAT)
    os.unlink(A["cache"] + "/probe")


@attack("Read a file of the machine's /tmp that anybody may read", refused=_ABSENT)
def read_the_machines_tmp() -> None:
    read(A["tmp"])


@attack("Leave a file in the machine's /tmp", refused=_ABSENT)
def write_the_machines_tmp() -> None:
    opened(os.path.dirname(A["tmp"]) + "/probe", os.O_WRONLY | os.O_CREAT)
    os.unlink(os.path.dirname(A["tmp"]) + "/probe")


@attack("Change the machine's programs", refused=_ABSENT)
def write_to_usr() -> None:
    opened("/usr/.probe", os.O_WRONLY | os.O_CREAT)
    os.unlink("/usr/.probe")


@attack("Change what the machine believes: /etc", refused=_ABSENT)
def write_to_etc() -> None:
    opened("/etc/hosts", os.O_WRONLY | os.O_APPEND)


@attack("Read the machine's password hashes", refused=_ABSENT)
def read_shadow() -> None:
    opened("/etc/shadow")


@attack("Look into root's folder", refused=_ABSENT)
def list_roots_folder() -> None:
    os.listdir("/root")


@attack("Leave something that the machine runs later (cron, at)", refused=_ABSENT)
def leave_a_timed_job() -> None:
    opened("/var/spool/.probe", os.O_WRONLY | os.O_CREAT)
    os.unlink("/var/spool/.probe")


@attack(
    "Leave the root directory by a descriptor that was left open",
    refused=_ABSENT + " EBADF ELOOP EMFILE ENODATA",
)
def walk_out_by_a_descriptor() -> str:
    """Of all descriptors and of the folder that it stands in, as far up as it goes."""
    for name in (*os.listdir("/proc/self/fd"), "../cwd"):
        try:
            folder = os.open("/proc/self/fd/" + name, os.O_PATH)
            for _ in range(40):
                try:
                    os.close(os.open(A["work"].lstrip("/"), os.O_RDONLY, dir_fd=folder))
                except OSError:
                    folder = os.open("..", os.O_PATH | os.O_DIRECTORY, dir_fd=folder)
                else:
                    return "done"
        except OSError:
            pass
    return "ENOENT"
