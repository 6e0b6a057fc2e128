"""What servers leave on the machine whose folders are deleted, and what of others must stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.cleanup import orphans, owners
from cloud_ml.engines.local.network import pins
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.errors import Unavailable
from cloud_ml.settings import EngineSettings

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks take root"),
    pytest.mark.xdist_group("networks"),
]
_TRIES = 4
_MAKE = """
import sys
from pathlib import Path
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.network.tenants import Networks
from cloud_ml.models import codec
import json
networks = Networks(codec.decode(LocalConfig, json.loads(sys.stdin.read())))
networks.start()
networks.need(1)
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Findings]]:
    """Findings to be cleared away in the end, whatever happened."""
    found: list[Findings] = []
    yield found
    for one in found:
        shutil.rmtree(one.config.root, ignore_errors=True)
    orphans.remove(orphans.group_folders(dict(found[0].config.cgroups)) if found else ())


def _server(folder: Path, made: list[Findings]) -> Findings:
    """A server's machine-wide things: a table, a link, a mounted network, control groups. Its
    processes have ended.
    """
    folder.mkdir(parents=True)
    engine_settings = EngineSettings(network="tenant")
    try:
        found = probe(
            engine_settings,
            root=folder,
            environments_home=folder / "e",
            runtimes_dir=folder / "r",
            uv=Path("uv"),
        )
    except Unavailable as error:
        pytest.skip(error.message)
    made.append(found)
    _start(found)
    return found


def _start(found: Findings) -> None:
    import json

    from cloud_ml.models import codec

    subprocess.run(
        [sys.executable, "-c", _MAKE],
        input=json.dumps(codec.encode(found.config)),
        text=True,
        check=True,
        timeout=60,
    )


def _things(found: Findings) -> list[str]:
    instance = found.config.network.instance
    tables = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, check=True
    ).stdout
    links = [path.name for path in Path("/sys/class/net").glob(f"cml{instance[:5]}-*")]
    groups = [
        folder
        for name, folder in found.config.cgroups.items()
        if name != "version" and Path(folder).is_dir()
    ]
    folders = [str(pins.HOME / instance)] if (pins.HOME / instance).exists() else []
    return [*(["table"] if f"cloudml-{instance}" in tables else []), *links, *groups, *folders]


def _folders(found: Findings) -> list[Path]:
    return orphans.group_folders(dict(found.config.cgroups))


@pytest.mark.parametrize("pinned", [True, False], ids=["with its register", "without it"])
def test_what_a_deleted_server_left_is_told_and_removed_and_others_stay(
    tmp_path: Path, made: list[Findings], pinned: bool
) -> None:
    living = _server(tmp_path / "living", made)
    subprocess.run(
        ["nft", "add", "table", "inet", "cloudml-000000000000"], check=True
    )  # nobody says whose it is
    try:
        before = _things(living)
        assert len(before) >= 3
        for number in range(_TRIES):
            dead = _server(tmp_path / f"dead{number}", made)
            root = str(tmp_path / f"dead{number}")
            shutil.rmtree(root)
            if not pinned:
                pins.Pins(dead.config.network.instance).remove()
            orphans_by_root = {one.owner.root: one for one in orphans.find(_folders(dead))}
            assert str(tmp_path / "living") not in orphans_by_root
            one = orphans_by_root.get(root)
            removed = [each.owner.root for each in orphans.remove(_folders(dead))]
            if one is not None and one.tables and root in removed:
                break  # else a server that another test has started was quicker
        assert one is not None
        assert len(one.tables) == 1
        assert len(one.links) == pinned, "a link goes with the network that nothing holds any more"
        assert one.pinned == pinned
        assert f"nft delete table inet cloudml-{dead.config.network.instance}" in one.commands
        assert "1 firewall table" in str(one)
        assert root in removed
        assert _things(dead) == []
        assert _things(living) == before
        tables = subprocess.run(
            ["nft", "list", "tables"], capture_output=True, text=True, check=True
        ).stdout
        assert "cloudml-000000000000" in tables
    finally:
        subprocess.run(["nft", "delete", "table", "inet", "cloudml-000000000000"], check=True)


def test_servers_that_start_at_once_remove_it_once_and_have_their_own(
    tmp_path: Path, made: list[Findings]
) -> None:
    dead = _server(tmp_path / "dead", made)
    starting = [_server(tmp_path / f"other{number}", made) for number in range(2)]
    shutil.rmtree(tmp_path / "dead")
    code = (
        "import sys\nfrom pathlib import Path\nfrom cloud_ml.engines.local.cleanup import orphans\n"
    )
    code += "print(len(orphans.remove([Path(one) for one in sys.argv[1:]])))\n" + _MAKE
    import json

    from cloud_ml.models import codec

    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, _folders(dead))],
            stdin=subprocess.PIPE,
            text=True,
        )
        for _ in starting
    ]
    for one in zip(running, starting, strict=True):
        assert one[0].stdin is not None
        one[0].stdin.write(json.dumps(codec.encode(one[1].config)))
        one[0].stdin.close()
    assert [one.wait(60) for one in running] == [0, 0]
    assert _things(dead) == []
    assert all("table" in _things(one) for one in starting)


def test_a_folder_of_another_mount_table_counts_as_there(tmp_path: Path) -> None:
    here = owners.owner_of(str(tmp_path / "gone"))
    assert here.gone
    assert not owners.Owner(here.root, here.mounts + 1).gone
    assert not owners.owner_of(str(tmp_path)).gone


def test_a_mark_that_was_cut_or_is_of_another_is_none() -> None:
    owner = owners.owner_of("/srv/cloud ml/engine")
    assert owners.parse(owner.mark, owner.instance) == owner
    assert owners.parse(owner.mark, owner.instance[:5]) == owner
    assert owners.parse(owner.mark[:-1], owner.instance) is None
    assert owners.parse("cloudml x /srv", owner.instance) is None
    assert owners.parse("", owner.instance) is None


def test_control_groups_say_whose_they_are(tmp_path: Path) -> None:
    owner = owners.owner_of(str(tmp_path))
    hierarchy, why = cgroups.find(f"cloudml-{owner.instance}", owner=owner)
    if hierarchy is None:
        pytest.skip(why)
    folders = [
        Path(folder) for name, folder in hierarchy.description().items() if name != "version"
    ]
    try:
        assert {owners.read_attribute(folder, owner.instance) for folder in folders} == {owner}
    finally:
        hierarchy.remove()
