from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.trainers.wheels import check_tags, layout, read_metadata

HERE = Interpreter(Path("/usr/bin/python3.11"), Path("/usr"), "3.11.7")


def unpacked(folder: Path) -> Path:
    info = folder / "demo-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Dist: six>=1\n\nText: no\n"
    )
    (info / "entry_points.txt").write_text(
        "[console_scripts]\ndemo = demo.cli:main\nbad/name = demo:main\n[other]\nx = demo:main\n"
    )
    for name in ("demo/__init__.py", "demo-1.0.data/purelib/more.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "demo" / "cli.py").write_text(
        "import sys\ndef main():\n    print('ran under', sys.prefix)\n"
    )
    scripts = folder / "demo-1.0.data" / "scripts"
    scripts.mkdir()
    (scripts / "tool").write_text("#!python\nimport sys\nprint(sys.argv[1:])\n")
    (scripts / "shell").write_text("#!/bin/sh\necho shell\n")
    return folder


def test_layout(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    found = layout(unpacked(tmp_path / "wheel"), site)
    assert (found.name, found.version, found.requires) == ("demo", "1.0", ("six>=1",))
    assert sorted(entry.name for entry in site.iterdir()) == [
        "bin",
        "demo",
        "demo-1.0.dist-info",
        "more.py",
    ]
    assert sorted(entry.name for entry in (site / "bin").iterdir()) == ["demo", "shell", "tool"]
    assert (site / "bin" / "shell").read_text() == "#!/bin/sh\necho shell\n"


def test_scripts_run_under_the_interpreter_of_the_job(tmp_path: Path) -> None:
    site, venv = tmp_path / "site", tmp_path / "env"
    site.mkdir()
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    layout(unpacked(tmp_path / "wheel"), site)
    environment = {"VIRTUAL_ENV": str(venv), "PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"}
    for script, output in (("demo", "ran under"), ("tool", "['a b']")):
        done = subprocess.run(
            [site / "bin" / script, "a b"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert output in done.stdout


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    with pytest.raises(EnvironmentFailed, match="dist-info") as caught:
        layout(tmp_path / "wheel", tmp_path)
    assert caught.value.reason == "TrainerInvalid"


def test_a_link_in_a_wheel_is_refused(tmp_path: Path) -> None:
    wheel = unpacked(tmp_path / "wheel")
    (wheel / "demo-1.0.data" / "purelib" / "more").symlink_to("../../demo")
    with pytest.raises(EnvironmentFailed, match=r"a link: demo-1\.0\.data/purelib/more"):
        layout(wheel, tmp_path / "site")


def test_metadata_stops_at_the_description() -> None:
    found = read_metadata(
        "Name: a\nVersion: 2\nRequires-Dist: b\n  continued\n\nRequires-Dist: c\n"
    )
    assert found.requires == ("b",)


@pytest.mark.parametrize(
    "name",
    [
        "trainer-1.0-py3-none-any.whl",
        "trainer-1.0-py2-none-any.whl",
        "trainer-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "trainer-1.0-cp38-abi3-linux_x86_64.whl",
        "trainer-1.0-1-py2.py3-none-any.whl",
    ],
)
def test_wheels_that_fit(name: str) -> None:
    check_tags(name, HERE)


@pytest.mark.parametrize(
    "name",
    [
        "trainer.whl",
        "trainer-1.0-cp37-cp37m-linux_x86_64.whl",
        "trainer-1.0-cp311-cp311-win_amd64.whl",
    ],
)
def test_wheels_that_do_not_fit(name: str) -> None:
    with pytest.raises(EnvironmentFailed):
        check_tags(name, HERE)
