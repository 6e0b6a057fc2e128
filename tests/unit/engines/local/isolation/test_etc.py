"""The ``/etc`` of jobs: a copy that keeps up with the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.local.isolation.etc import Etc


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine's ``/etc``."""
    folder = tmp_path / "machine"
    for name in ("alternatives", "fonts/conf.d", "ssl/private"):
        (folder / name).mkdir(parents=True)
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    (folder / "resolv.conf").write_text("nameserver 192.0.2.1\n")
    (folder / "shadow").write_text("root:secret:1::::::\n")
    (folder / "fonts" / "fonts.conf").write_text("<fontconfig/>")
    (folder / "alternatives" / "editor").symlink_to("/usr/bin/vi")
    return folder


@pytest.fixture
def etc(machine: Path, tmp_path: Path) -> Etc:
    etc = Etc(tmp_path / "etc", machine)
    etc.create()
    return etc


def text(tmp_path: Path, name: str) -> str:
    return (tmp_path / "etc" / name).read_text()


def names(tmp_path: Path, folder: str) -> list[str]:
    return [path.name for path in (tmp_path / "etc" / folder).iterdir()]


def test_it_holds_what_is_for_everybody_and_its_own_users(etc: Etc, tmp_path: Path) -> None:
    del etc
    assert text(tmp_path, "hosts") == "127.0.0.1 localhost\n"
    assert text(tmp_path, "fonts/fonts.conf") == "<fontconfig/>"
    assert (tmp_path / "etc" / "alternatives" / "editor").readlink() == Path("/usr/bin/vi")
    assert [line.split(":")[0] for line in text(tmp_path, "passwd").splitlines()] == [
        "root",
        "job",
        "nobody",
    ]
    assert not (tmp_path / "etc" / "shadow").exists()
    assert list((tmp_path / "etc" / "ssl").iterdir()) == [], "a place to mount the machine's"
    assert (tmp_path / "etc" / "hosts").stat().st_mode & 0o777 == 0o644


def test_what_is_changed_replaced_or_gone_is_so_after_the_next_look(
    etc: Etc, machine: Path, tmp_path: Path
) -> None:
    (machine / "resolv.conf").write_text("nameserver 192.0.2.2\n")
    (machine / "new").write_text("127.0.0.1 other\n")
    (machine / "new").replace(machine / "hosts")
    (machine / "fonts" / "fonts.conf").write_text("<changed/>")
    (machine / "alternatives" / "editor").unlink()
    (machine / "alternatives" / "pager").symlink_to("/usr/bin/less")
    (machine / "timezone").write_text("Europe/Berlin\n")
    etc.refresh()
    assert text(tmp_path, "resolv.conf") == "nameserver 192.0.2.2\n"
    assert text(tmp_path, "hosts") == "127.0.0.1 other\n"
    assert text(tmp_path, "fonts/fonts.conf") == "<changed/>"
    assert names(tmp_path, "alternatives") == ["pager"]
    assert text(tmp_path, "timezone") == "Europe/Berlin\n"
    (machine / "timezone").unlink()
    (machine / "fonts" / "fonts.conf").unlink()
    etc.refresh()
    assert not (tmp_path / "etc" / "timezone").exists()
    assert names(tmp_path, "fonts") == ["conf.d"]


def test_what_is_a_link_on_the_machine_is_a_file_here(
    etc: Etc, machine: Path, tmp_path: Path
) -> None:
    (tmp_path / "stub").write_text("nameserver 192.0.2.3\n")
    (machine / "resolv.conf").unlink()
    (machine / "resolv.conf").symlink_to(tmp_path / "stub")
    etc.refresh()
    assert text(tmp_path, "resolv.conf") == "nameserver 192.0.2.3\n"
    (tmp_path / "stub").write_text("nameserver 192.0.2.44\n")
    etc.refresh()
    assert text(tmp_path, "resolv.conf") == "nameserver 192.0.2.44\n"


def test_what_others_may_not_read_is_not_copied(etc: Etc, machine: Path, tmp_path: Path) -> None:
    (machine / "fonts" / "fonts.conf").chmod(0o640)
    (machine / "hosts").chmod(0o600)
    etc.refresh()
    assert not (tmp_path / "etc" / "hosts").exists()
    assert not (tmp_path / "etc" / "fonts" / "fonts.conf").exists()


def test_a_look_at_what_has_not_changed_writes_nothing(etc: Etc, tmp_path: Path) -> None:
    before = {path: path.stat().st_ino for path in (tmp_path / "etc").rglob("*") if path.is_file()}
    etc.refresh()
    assert {
        path: path.stat().st_ino for path in (tmp_path / "etc").rglob("*") if path.is_file()
    } == before
