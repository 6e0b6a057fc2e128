"""``cloudml server unit``: the unit of systemd for this server, printed."""

from __future__ import annotations

import pwd
import shlex
import shutil
import sys
from pathlib import Path

import click

from cloud_ml.cli.display.output import note
from cloud_ml.cli.server.group import DATA_DIR_HELP

_UNIT = """\
# Printed by `cloudml server unit`.
[Unit]
Description=Cloud ML server
After=network-online.target
Wants=network-online.target

[Service]
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=2
# Jobs, model services and the gateway run on while the server restarts.
KillMode=process
# Limits of jobs need control groups: without root, systemd 254 or newer.
Delegate=yes
DelegateSubgroup=server
TimeoutStopSec=60
LimitNOFILE=65536
UMask=0077
{hardening}
[Install]
WantedBy=multi-user.target
"""
_HARDENING = "NoNewPrivileges=yes\n"


@click.command(
    help="Print a unit of systemd that runs this server, for /etc/systemd/system/cloud-ml.service."
)
@click.option("--user", default="cloud-ml", show_default=True, metavar="NAME", help="The user that runs the "
                                                                                    "server. "
              "With root, each organisation's jobs have a user and a network of their "
              "own.")  # fmt: skip
@click.option("--data-dir", type=click.Path(file_okay=False, readable=False), help=DATA_DIR_HELP)
@click.option("--config", "file", type=click.Path(dir_okay=False), help="Settings, as TOML.")
@click.pass_context
def unit(ctx: click.Context, user: str, data_dir: str | None, file: str | None) -> None:
    assert ctx.parent is not None
    given = {
        "--config": file or ctx.parent.params["file"],
        "--data-dir": data_dir or ctx.parent.params["data_dir"],
    }
    if not any(given.values()):
        raise click.UsageError(
            "name the settings with --config, or the data folder with --data-dir", ctx=ctx
        )
    _warn(user, given["--config"])
    words = [find_program(), "server"]
    for option, path in given.items():
        if path:
            words += [option, str(Path(path).absolute())]
    command = " ".join(quote(word) for word in words)
    hardening = "" if user == "root" else _HARDENING
    click.echo(_UNIT.format(user=quote(user), command=command, hardening=hardening), nl=False)


def _warn(user: str, file: str | None) -> None:
    """Say on standard error what is missing on this machine. The unit may be for another one."""
    if not user.isdecimal() and not _is_known(user):
        note(
            f"There is no user {user} on this machine. Create it before the unit starts: "
            f"useradd --system --user-group {shlex.quote(user)}"
        )
    if file is not None and not _may_be_there(Path(file)):
        note(f"There is no file {Path(file).absolute()}. The server does not start without it.")


def _is_known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _may_be_there(file: Path) -> bool:
    """Whether there is such a file, or in a folder that is closed to this user."""
    try:
        return file.is_file()
    except OSError:
        return True


def find_program() -> str:
    """The path of ``cloudml``: a link to it that the shell finds, which an upgrade moves, else
    the program itself.
    """
    own = Path(sys.prefix, "bin", "cloudml")
    found = shutil.which("cloudml")
    if found is not None and own.exists() and Path(found).resolve() == own.resolve():
        return str(Path(found).absolute())
    return str(own)


def quote(word: str) -> str:
    """A word of a command as systemd reads it: ``%`` and ``$`` have a meaning, blanks and quotes
    divide.
    """
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return (
        f'"{text}"'
        if text != word or any(character in word for character in " '\t;") or not word
        else word
    )
