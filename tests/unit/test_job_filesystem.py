"""``fds://`` in jobs, for what reads files through fsspec: the folders of buckets, and no server."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cloud_ml

COPY = Path(cloud_ml.__file__).parent / "environments" / "compat" / "job"
MODULES = ("cloud_ml_fsspec.py", "cloud_ml_fsspec_import.py", "cloud_ml_job_import.py")
_AS_IN_A_JOB = f"import site; site.addsitedir({str(COPY)!r})\n"
_OUTCOMES = """
import fsspec
def outcome(do, *arguments, **named):
    try:
        return do(*arguments, **named)
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
"""


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """The tree of a job that sees two buckets."""
    folder = tmp_path / "storage"
    (folder / "cloudml" / "in").mkdir(parents=True)
    (folder / "cloudml" / "in" / "a.csv").write_text("a,b\n1,2\n")
    (folder / "other").mkdir()
    (tmp_path / "secret").write_text("outside")
    return folder


def run(code: str, storage: Path | None, *options: str) -> str:
    """What a program prints in an interpreter of a job, in which the SDK is installed, too."""
    environment = {"PATH": os.environ["PATH"]}
    if storage is not None:
        environment["CLOUDML_STORAGE"] = str(storage)
    ran = subprocess.run(
        [sys.executable, *options, "-c", _AS_IN_A_JOB + code],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.parametrize("name", MODULES)
def test_old_interpreters_understand_it(name: str) -> None:
    ast.parse((COPY / name).read_text("utf-8"), feature_version=(3, 6))


def test_it_reads_writes_and_lists_like_the_sdk_outside_of_jobs(storage: Path) -> None:
    output = run(
        """
import fsspec
fs = fsspec.filesystem("fds")
print(fs.ls("", detail=False), fs.ls("fds://cloudml/in", detail=False), fs.glob("fds://cloudml/*/*.csv"))
with fsspec.open("fds://other/made/b.txt", "w") as file:
    file.write("0123456789")
print(fs.cat_file("fds://other/made/b.txt", 2, -3), fs.size("other/made/b.txt"), fs.find("other"))
with fs.open("fds://other/made/b.txt", "ab") as file:
    file.write(b"!")
fs.cp("other/made/b.txt", "other/new/c.txt")
fs.mv("fds://other/new/c.txt", "fds://cloudml/d.txt")
fs.rm("fds://other/made", recursive=True)
print(fs.cat("fds://cloudml/d.txt"), fs.ls("other", detail=False), fs.exists("other/made"))
with fs.transaction:
    with fs.open("fds://other/late", "wb") as file:
        file.write(b"x")
    print(fs.exists("other/late"))
print(fs.exists("other/late"), fs.modified("other/late").tzinfo, fs.isdir("cloudml/in"))
""",
        storage,
    ).splitlines()
    assert output == [
        "['cloudml', 'other'] ['cloudml/in/a.csv'] ['cloudml/in/a.csv']",
        "b'23456' 10 ['other/made/b.txt']",
        "b'0123456789!' ['other/new'] False",
        "False",
        "True UTC True",
    ]
    assert (storage / "cloudml" / "d.txt").read_text() == "0123456789!"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("fsspec.open, 'fds://cloudml/none.csv'", ["FileNotFoundError", "fds://cloudml/none.csv"]),
        (
            "fs.open, 'fds://absent/a', 'wb'",
            ["FileNotFoundError", "no such bucket", "fds://absent/a"],
        ),
        ("fs.ls, 'fds://absent'", ["FileNotFoundError", "fds://absent"]),
        ("fs.info, 'absent/a'", ["FileNotFoundError", "fds://absent/a"]),
        ("fs.cat, 'fds://cloudml/../../secret'", ["ValueError", "fds://cloudml/../../secret"]),
        ("fs.pipe, 'fds://cloudml/../../made', b''", ["ValueError", "can be no object"]),
        ("fs.open, 'fds://../secret'", ["ValueError", "can be no object"]),
        ("fs.mkdir, 'fds://new'", ["PermissionError", "no buckets", "fds://new"]),
        ("fs.rmdir, 'fds://other'", ["PermissionError", "fds://other"]),
        ("fs.rm, 'fds://cloudml', True", ["PermissionError", "fds://cloudml"]),
        ("fs.mv, 'fds://other', 'fds://cloudml/b'", ["PermissionError", "fds://other"]),
        ("fs.open, 'fds://cloudml/in'", ["IsADirectoryError", "fds://cloudml/in"]),
        ("fs.modified, 'fds://cloudml/in'", ["IsADirectoryError", "fds://cloudml/in"]),
    ],
)
def test_errors_are_those_of_files_and_name_the_uri(
    code: str, words: list[str], storage: Path
) -> None:
    opened = "lambda *a: fsspec.open(*a).open()" if "fsspec.open" in code else "None"
    call = code.replace("fsspec.open", "opened")
    output = run(
        f"{_OUTCOMES}\nfs = fsspec.filesystem('fds')\nopened = {opened}\nprint(outcome({call}))",
        storage,
    )
    assert all(word in output for word in words), output
    assert str(storage) not in output
    assert {one.name for one in storage.parent.iterdir()} == {"secret", "storage"}
    assert {one.name for one in storage.iterdir()} == {"cloudml", "other"}
    assert (storage / "cloudml" / "in" / "a.csv").exists()


def test_outside_of_a_job_it_says_so() -> None:
    output = run(f"{_OUTCOMES}\nprint(outcome(fsspec.filesystem, 'fds'))", None)
    assert (
        output
        == "ValueError: fds:// leads to the buckets of a job, and CLOUDML_STORAGE is not set\n"
    )


def test_it_is_no_distribution_and_costs_programs_without_fsspec_nothing(storage: Path) -> None:
    output = run(
        f"""
import sys, importlib.metadata
print(sorted(name for name in sys.modules if "fsspec" in name))
print([d.metadata["Name"] for d in importlib.metadata.distributions(path=[{str(COPY)!r}])])
print(importlib.metadata.version("cloud-ml") == {cloud_ml.__version__!r})
""",
        storage,
    )
    assert output.splitlines() == ["[]", "[]", "True"]


def test_without_fsspec_its_import_fails_as_ever(storage: Path) -> None:
    output = run(
        "import importlib.util\nprint(importlib.util.find_spec('fsspec'))\n"
        "try:\n    import fsspec\nexcept ModuleNotFoundError as error:\n    print(error)",
        storage,
        "-S",
    )
    assert output.splitlines() == ["None", "No module named 'fsspec'"]


def test_an_fsspec_that_is_reloaded_or_of_the_jobs_own_is_found(storage: Path) -> None:
    own = storage.parent / "code" / "fsspec"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("OWN = True\n")
    output = run(
        f"""
import importlib, sys, fsspec
print(fsspec.get_filesystem_class("fds").__module__)
print(importlib.reload(fsspec).get_filesystem_class("fds").__module__)
for name in [name for name in sys.modules if name.partition(".")[0] == "fsspec"]:
    del sys.modules[name]
sys.path.insert(0, {str(own.parent)!r})
importlib.invalidate_caches()
import fsspec
print(fsspec.OWN)
""",
        storage,
    )
    assert output.splitlines() == ["cloud_ml_fsspec", "cloud_ml_fsspec", "True"]
