"""Words of tools without the paths of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

import cloud_ml
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.server_paths import ServerPaths

HOME = Path("/srv/cloudml/environments")
PACKAGE = Path(cloud_ml.__file__).parent


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (f'File "{HOME}/tenants/1/trainers/.ab12.making/out/src/setup.py"', 'File "setup.py"'),
        (f"in {HOME}/tenants/1/trainers/.ab12.making/out/src", "in ."),
        (f"'{HOME}/tenants/1/trainers/.ab12.making/out/src'", "'.'"),
        (f"{HOME}/layers/3f/site-packages/six.py", "site-packages/six.py"),
        (f"{HOME}/tenants/1/layers/3f/site-packages/six.py", "site-packages/six.py"),
        (f"-I{HOME}/tenants/1/uv-cache/a/b", "-Ienvironments/tenants/1/uv-cache/a/b"),
        (f"{HOME}s/x {HOME}-2", f"{HOME}s/x {HOME}-2"),
        (f'File "{PACKAGE}/environments/builder/stage.py"', 'File "cloud_ml/environments/builder/stage.py"'),
        ("nothing of ours: /usr/lib/python3/x.py", "nothing of ours: /usr/lib/python3/x.py"),
    ],
)  # fmt: skip
def test_paths_of_the_server_become_relative(words: str, shown: str) -> None:
    assert ServerPaths(HOME).relative(words.encode()).decode() == shown


def test_a_home_behind_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    paths = ServerPaths(tmp_path / "home")
    for name in ("home", "disk"):
        assert paths.relative(bytes(tmp_path / name / "x")) == b"environments/x"


def test_failures_tell_no_path_of_the_server() -> None:
    with pytest.raises(EnvironmentFailed) as caught, ServerPaths(HOME).in_failures():
        raise EnvironmentFailed("EnvironmentFailed", f"no file {HOME}/layers/3/site-packages/a")
    assert caught.value.message == str(caught.value) == "no file site-packages/a"
    assert caught.value.reason == "EnvironmentFailed"


def test_words_that_are_no_text_stay_as_they_are() -> None:
    assert ServerPaths(HOME).relative(b"\xff\xfe\x00") == b"\xff\xfe\x00"
