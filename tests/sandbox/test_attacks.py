"""Every attack, in every run of the scene: held where it is claimed to be, through where nothing
holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import cloud_ml
from cloud_ml.engines.local.isolation import landlock
from support.attacks import PYTHON
from support.hostile import page, scene
from support.hostile.attack import BUILD, LANDLOCK, SANDBOX, STRANGER, Attack
from support.hostile.scene import ATTACKS

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="the attacks' call numbers are x86_64's"
    ),
    pytest.mark.xdist_group("scene"),
]

Played = Mapping[str, Mapping[str, str]]
Once = Callable[[str, Callable[[], Played]], Played]
_TESTS = Path(__file__).resolve().parent.parent
_NOBODY = 65534


def _play(folder: Path, python: str, user: int | None) -> Played:
    folder.mkdir()
    folder.chmod(0o755)
    if user is not None:
        os.chown(folder, user, user)
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    played = subprocess.run(
        [python, scene.__file__, str(folder)],
        env={"PYTHONPATH": str(_TESTS), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=110,
        cwd="/",
        **identity,
    )
    found: Played = json.loads(played.stdout.splitlines()[-1])
    return found


def _python_for_all(folder: Path) -> str:
    """An interpreter with the platform in it that any user can run: the tests' own may be in
    root's folder.
    """
    if not Path(PYTHON).is_relative_to("/usr"):
        pytest.skip("there is no Python that an ordinary user could run")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "platform.pth").write_text(str(Path(cloud_ml.__file__).parent.parent))
    python = str(folder / "bin" / "python")
    reachable = subprocess.run(
        [python, "-c", "import cloud_ml.engines.local.engine"], user=_NOBODY, check=False
    )
    if reachable.returncode:
        pytest.skip("an ordinary user cannot reach this checkout, or its Python is too old")
    return python


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that everybody may pass through, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="cloudml-scene-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Plays a scene once for all workers of a run: the others read what it brought."""

    def play(name: str, scene: Callable[[], Played]) -> Played:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return scene()
        with (tmp_path_factory.getbasetemp().parent / f"scene-{name}.json").open("a+") as kept:
            fcntl.flock(kept, fcntl.LOCK_EX)
            kept.seek(0)
            if text := kept.read():
                found: Played = json.loads(text)
                return found
            found = scene()
            kept.write(json.dumps(found))
            return found

    return play


@pytest.fixture(scope="module")
def played(folder: Path, once: Once) -> Played:
    """By a server of the tests' own user."""
    return once("own", lambda: _play(folder / "own", sys.executable, None))


@pytest.fixture(scope="module")
def ordinary(folder: Path, played: Played, once: Once) -> Played:
    """By a server of an ordinary user."""
    if os.geteuid() != 0:
        return played
    return once(
        "ordinary", lambda: _play(folder / "ordinary", _python_for_all(folder / "python"), _NOBODY)
    )


each = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def _run(played: Played, name: str) -> Mapping[str, str]:
    if name not in played:
        pytest.skip(f"{name} cannot be had on this machine")
    return played[name]


def _held(attack: Attack, answer: str) -> None:
    assert answer in attack.refused, f"{attack.title}: {answer}"


@each
def test_without_the_fence_it_works(played: Played, attack: Attack) -> None:
    if not attack.control:
        pytest.skip("no kernel at hand lets it through")
    answer = _run(played, attack.control)[attack.name]
    if answer != "done" and (
        os.geteuid() != 0 or answer in ("EACCES", "EPERM", "ENOENT", "ENOSYS", "ValueError")
    ):
        pytest.skip(f"this machine refuses it by itself: {answer}")
    assert answer == "done", attack.title


@each
def test_the_sandbox_holds(played: Played, attack: Attack) -> None:
    _held(attack, _run(played, SANDBOX)[attack.name])


@each
def test_building_a_package_is_fenced_like_a_job(played: Played, attack: Attack) -> None:
    _held(attack, _run(played, BUILD)[attack.name])


@each
def test_landlock_holds_what_it_is_said_to(played: Played, attack: Attack) -> None:
    answer = _run(played, LANDLOCK)[attack.name]
    if attack.landlock:
        _held(attack, answer)


@each
def test_the_sandbox_of_an_ordinary_user_holds(ordinary: Played, attack: Attack) -> None:
    _held(attack, _run(ordinary, SANDBOX)[attack.name])


@each
def test_landlock_of_an_ordinary_user_holds_what_it_is_said_to(
    ordinary: Played, attack: Attack
) -> None:
    answer = _run(ordinary, LANDLOCK)[attack.name]
    if attack.landlock:
        _held(attack, answer)


def test_the_page_names_every_attack() -> None:
    assert page.written() == page.table(), "run python -m support.hostile.page in tests"


def test_most_controls_got_through(played: Played) -> None:
    """So that a scene that is set up wrongly does not pass as a machine that refuses everything."""
    if os.geteuid() != 0:
        pytest.skip("what nothing holds is tried as root")
    tried = [one for one in ATTACKS.values() if one.control in played]
    through = [one for one in tried if played[one.control][one.name] == "done"]
    assert len(through) >= 0.9 * len(tried)


def test_landlock_is_what_this_kernel_has(played: Played) -> None:
    if landlock.version() < landlock.SCOPES_SINCE:
        pytest.skip("an older kernel")
    assert played[LANDLOCK]["connect_to_an_abstract_socket"] == "EPERM"
    assert STRANGER not in played or played[STRANGER]["connect_to_an_abstract_socket"] == "done"
