"""Whose the data folder is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml import data_folder
from cloud_ml.errors import CloudMlError, Forbidden

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to be two users takes root")
OTHER = 54_321


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may walk through."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def _as_other(data: Path) -> str:
    """What a server of the other user says of the folder. Forked: that user cannot read our
    interpreter.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(OTHER)
        os.setuid(OTHER)
        try:
            data_folder.hold(data, for_server=True)
            told = "held"
        except CloudMlError as error:
            told = f"{error.message}|{error.hint}"
        os.write(sender, told.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def _given(data: Path) -> Path:
    data.mkdir()
    os.chown(data, OTHER, OTHER)
    return data


def test_a_server_of_root_does_not_use_the_folder_of_another_user(folder: Path) -> None:
    data = _given(folder / "data")
    assert _as_other(data) == "held"
    with pytest.raises(
        Forbidden, match=f"belongs to the user {OTHER}, and this process runs as root"
    ) as refused:
        data_folder.hold(data, for_server=True)
    assert refused.value.hint is not None
    assert f"User={OTHER}" in refused.value.hint


def test_maintenance_by_root_leaves_the_folder_to_its_user(folder: Path) -> None:
    data = _given(folder / "data")
    os.close(data_folder.hold(data))
    assert _as_other(data) == "held"


def test_who_may_not_use_the_folder_is_told_whose_it_is(folder: Path) -> None:
    os.close(data_folder.hold(folder / "roots", for_server=True))
    assert "belongs to the user root" in _as_other(folder / "roots")
    assert f"chown -R {OTHER}: {folder / 'roots'}" in _as_other(folder / "roots")
    assert f"install -d -o {OTHER} -m 711 {folder / 'new'}" in _as_other(folder / "new")
    assert not (folder / "new").exists()
