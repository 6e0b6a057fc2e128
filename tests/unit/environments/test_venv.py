from __future__ import annotations

import subprocess
from pathlib import Path

from cloud_ml.environments.interpreter import own
from cloud_ml.environments.packages.venv import make_venv, variables


def answer(venv: Path, *arguments: str) -> str:
    done = subprocess.run(
        [venv / "bin" / "python", *arguments], env={}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_job_sees_its_sites_in_order_behind_its_own_packages(tmp_path: Path) -> None:
    sites = [tmp_path / "trainer", tmp_path / "it's a layer"]
    for number, site in enumerate(sites):
        site.mkdir()
        (site / "shared.py").write_text(f"origin = {number}\n")
        (site / f"only{number}.py").write_text("")
    (sites[1] / "hook.pth").write_text("import sys; sys.hooked = True\n")
    venv = tmp_path / "env"
    make_venv(venv, own(), sites)
    question = "import shared, only0, only1, sys; print(shared.origin, sys.hooked, sys.prefix)"
    assert answer(venv, "-I", "-c", question) == f"0 True {venv}"

    (venv / "lib" / f"python{own().minor}" / "site-packages" / "shared.py").write_text(
        "origin = 'mine'\n"
    )
    make_venv(venv, own(), sites)
    assert answer(venv, "-c", question) == f"mine True {venv}"


def test_nothing_of_the_platform_is_seen(tmp_path: Path) -> None:
    make_venv(tmp_path / "env", own(), [])
    question = "import importlib.util as u; print(u.find_spec('cloud_ml'), u.find_spec('pytest'))"
    assert answer(tmp_path / "env", "-I", "-c", question) == "None None"


def test_variables() -> None:
    found = variables("/env", [Path("/a"), Path("/b")])
    assert found == {
        "VIRTUAL_ENV": "/env",
        "PATH": "/env/bin:/a/bin:/b/bin:/usr/local/bin:/usr/bin:/bin",
    }


def test_the_interpreter_is_a_real_one() -> None:
    python = own()
    assert python.path.is_file()
    assert not python.path.is_symlink()
    assert python.path.is_relative_to(python.prefix)
    assert "shims" not in python.path.parts
