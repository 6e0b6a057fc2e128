"""A fresh machine: a Debian of its own with its own processes, network and mounts, and a shell of root in it.

No systemd runs in it. ``systemctl`` is a small program that does with the unit what the page needs: it starts what
``ExecStart`` names as ``User``, and with ``KillMode=process`` stops this process and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.reader import Shell

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
PACKAGES = "systemd,python3-venv,ca-certificates,bubblewrap,git,nftables,curl"
_DOWNLOAD_S = 400
_KEPT = ROOT / ".cache" / f"debian-{SUITE}"
_SYSTEMCTL = r"""#!/bin/bash
# What the install page needs of systemctl, where no systemd runs.
unit=/etc/systemd/system/cloud-ml.service pid=/run/cloud-ml.pid
value() { sed -n "s/^$1=//p" $unit; }
stop() { [ ! -f $pid ] || { kill -TERM $(cat $pid) 2>/dev/null; tail --pid=$(cat $pid) -f /dev/null; rm -f $pid; }; }
start() {
  local user=$(value User)
  local home=$(getent passwd $user | cut -d: -f6)
  HOME=$home setsid runuser -u $user -- sh -c "echo \$\$ > /tmp/pid; umask $(value UMask); exec $(value ExecStart)" \
    >> /var/log/cloud-ml.log 2>&1 < /dev/null &
  while [ ! -s /tmp/pid ]; do sleep 0.05; done
  mv /tmp/pid $pid
}
case "$1" in
  daemon-reload) ;;
  start | enable) start ;;
  stop | disable) stop ;;
  restart) stop; start ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
"""
_ENTER = """
set -e
mount --make-rprivate /
mount --bind {root} {root}
mount -t proc proc {root}/proc
mount --rbind /dev {root}/dev
mount -t tmpfs -o mode=755 tmpfs {root}/run
mount -t tmpfs -o mode=1777 tmpfs {root}/tmp
ip link set lo up 2>/dev/null || true
exec chroot {root} /bin/bash --norc --noprofile
"""


def debian() -> Path:
    """A Debian with what the page has the reader install, made once and kept in ``.cache``."""
    if os.geteuid() != 0:
        pytest.skip("a fresh Debian takes root")
    if not _KEPT.exists():
        if shutil.which("debootstrap") is None:
            pytest.skip("no debootstrap: apt-get install debootstrap")
        draft = _KEPT.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={PACKAGES}",
            SUITE,
            str(draft),
            *_mirror(),
        ]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=_DOWNLOAD_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"no Debian could be made: {error}; {(error.stdout or '').strip()[-200:]}")
        draft.rename(_KEPT)
    return _KEPT


def _mirror() -> list[str]:
    """The mirror that this machine uses, if it says so."""
    for file in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for line in file.read_text().splitlines():
            if line.startswith("URIs:"):
                return [line.split()[1]]
    return []


def fresh(folder: Path) -> Path:
    """A copy of that Debian, with the wheel and everything that its lock names in ``/root``."""
    root = folder / "machine"
    subprocess.run(["cp", "-a", "--reflink=auto", str(debian()), str(root)], check=True)
    home = root / "root"
    build = [sys.executable, str(ROOT / "tools/wheel.py"), str(home)]
    subprocess.run(build, check=True, capture_output=True)
    wheels = [
        sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps",
        "-r", str(ROOT / "locks/server.txt"), "-d", str(root / "wheels"),
    ]  # fmt: skip
    subprocess.run(wheels, check=True, capture_output=True)
    job = [
        *wheels[:5],
        "setuptools>=80,<81",
        "pip",
        "wheel",
        "-d",
        str(root / "wheels"),
    ]  # of every environment of a job
    subprocess.run(job, check=True, capture_output=True)
    program = root / "usr/local/sbin/systemctl"
    program.write_text(_SYSTEMCTL)
    program.chmod(0o755)
    return root


def shell(root: Path) -> Shell:
    """A shell of root on that machine, which ends with all processes of it when the shell is closed."""
    variables = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/wheels",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    spaces = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    return Shell(root, variables, [*spaces, "bash", "-c", _ENTER.format(root=root)])
