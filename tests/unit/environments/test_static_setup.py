"""A setup.py that is read says what it would have made; what is not plain is left to be run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from email import message_from_string
from pathlib import Path

import pytest

from cloud_ml.environments.builder import static_setup
from cloud_ml.environments.trainers.unpacking import unpack

PLAIN = "from setuptools import setup\nsetup(name='trainer', version='1.0', packages=['trainer'])\n"
MODULES = {"trainer/__init__.py": "", "trainer/task.py": "print('ran')\n"}
BUILD_ALL = """
import os, sys
import setuptools.build_meta as backend
for folder in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(folder)
        sys.argv[:] = ["setup.py"]
        os._exit(not backend.__legacy__.build_wheel(folder + ".wheel"))
    assert os.wait()[1] == 0, folder
"""
"""Builds each folder as the platform does, in a process that has imported setuptools."""

STATIC_SETUP = """
'''The trainer.'''
from __future__ import annotations
from setuptools import find_packages, setup

REQUIRED = ['NumPy>=1.0,<2', "six", 'some-Package ~=1.2, !=1.2.5', 'a.b==0.1']
DESCRIPTION = 'Says ' 'it all'

if __name__ == '__main__':
    setup(
        name='My-Own.Trainer',
        version='0.12.3',
        packages=find_packages(),
        include_package_data=True,
        zip_safe=False,
        install_requires=REQUIRED,
        python_requires='>=3.6, <4',
        classifiers=['Programming Language :: Python :: 3', 'Private :: Do Not Upload'],
        description=DESCRIPTION,
        url='https://example.org',
        author='A. Person',
        author_email='a@example.org',
        license='MIT',
    )
"""

READ: dict[str, Mapping[str, str]] = {
    "a name, a version and a package": {"setup.py": PLAIN, **MODULES},
    "all arguments that are known": {
        "setup.py": STATIC_SETUP,
        **MODULES,
        "trainer/data.json": "{}",
        "trainer/deep/__init__.py": "",
        "trainer/deep/er/__init__.py": "",
        "trainer/not_a_package/part.py": "",
        "trainer/.hidden.py": "",
        "trainer/odd name.py": "",
        "tests/__init__.py": "",
        "tests/test_task.py": "",
        "other.py": "",
        "README.md": "# Trainer",
        "requirements.txt": "six",
    },
    "the module is imported": {
        "setup.py": "import setuptools\nsetuptools.setup(\n"
        "    name='t', version='3', packages=setuptools.find_packages())\n",
        **MODULES,
    },
    "a part of a package, which has no file of its own": {
        "setup.py": PLAIN.replace("'trainer']", "'trainer.part']"),
        "trainer/task.py": "",
        "trainer/part/task.py": "",
    },
    "tuples": {
        "setup.py": PLAIN.replace("['trainer']", "('trainer',), install_requires=('six',)"),
        **MODULES,
    },
}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file()
    }


def metadata(text: str) -> list[tuple[str, str]]:
    """Its fields in their order, without what only tells how they were made."""
    fields = message_from_string(text).items()
    return [(key, value) for key, value in fields if key not in ("Metadata-Version", "Dynamic")]


def test_what_is_read_is_what_setuptools_makes(tmp_path: Path) -> None:
    folders = {
        kind: write(tmp_path / str(number), files)
        for number, (kind, files) in enumerate(READ.items())
    }
    (folders["all arguments that are known"] / "trainer" / "task.py").chmod(0o755)
    for folder in folders.values():
        Path(f"{folder}.wheel").mkdir()
    found = {kind: static_setup.read(folder) for kind, folder in folders.items()}
    for kind, folder in folders.items():
        setup = found[kind]
        assert setup is not None, kind
        static_setup.lay_out(folder, setup, Path(f"{folder}.ours"))
    subprocess.run(
        [sys.executable, "-c", BUILD_ALL, *map(str, folders.values())],
        check=True,
        capture_output=True,
    )
    for kind, folder in folders.items():
        (wheel,) = Path(f"{folder}.wheel").glob("*.whl")
        theirs, ours = Path(f"{folder}.theirs"), Path(f"{folder}.ours")
        unpack(wheel, wheel.name, theirs)
        assert {file.relative_to(theirs): file.stat().st_mode for file in theirs.rglob("*")} == {
            file.relative_to(ours): file.stat().st_mode for file in ours.rglob("*")
        }, kind
        made, expected = contents(ours), contents(theirs)
        for name in expected:
            if name.endswith("/METADATA"):
                assert metadata(made[name]) == metadata(expected[name]), kind
            elif not name.endswith(("/WHEEL", "/RECORD")):
                assert made[name] == expected[name], (kind, name)
            elif name.endswith("/RECORD"):
                assert _modules_of(made[name]) == _modules_of(expected[name]), kind


def _modules_of(record: str) -> list[str]:
    return sorted(line for line in record.splitlines() if ".dist-info/" not in line)


RUN = {
    "a value that is computed": PLAIN.replace("'1.0'", "'.'.join('10')"),
    "a version from a file": PLAIN.replace("'1.0'", "open('VERSION').read()"),
    "another statement": PLAIN + "print('done')\n",
    "another import": "import os\n" + PLAIN,
    "setup of another module": PLAIN.replace("setuptools", "distutils.core"),
    "setup under another name": PLAIN.replace("import setup", "import setup as setup"),
    "setup that was not imported": PLAIN.partition("\n")[2],
    "setup that is another": "from setuptools import setup\nsetup = print\nsetup(name='t')\n",
    "two calls": PLAIN + PLAIN,
    "an argument that is not known": PLAIN.replace("packages=", "scripts=['run'], packages="),
    "an unpacked mapping": PLAIN.replace("packages=", "**{}, packages="),
    "an argument twice": PLAIN.replace("packages=", "name='b', packages="),
    "a positional argument": PLAIN.replace("name=", "'trainer', name="),
    "no version": PLAIN.replace("version='1.0', ", ""),
    "a version that is written otherwise": PLAIN.replace("1.0", "1.00-RC1"),
    "no packages": PLAIN.replace(", packages=['trainer']", ""),
    "packages that are not there": PLAIN.replace("['trainer']", "['trainer', 'other']"),
    "a package twice": PLAIN.replace("['trainer']", "['trainer'] * 2"),
    "a package outside": PLAIN.replace("['trainer']", "['trainer', '../other']"),
    "a requirement with a marker": PLAIN.replace(
        "packages=", "install_requires=['six; os_name == \"posix\"'], packages="
    ),
    "a requirement by its address": PLAIN.replace(
        "packages=", "install_requires=['six @ https://example.org/six.whl'], packages="
    ),
    "a text of two lines": PLAIN.replace("packages=", "description='a\\nName: b', packages="),
    "no Python": PLAIN + "(",
    "deep brackets": PLAIN.replace("['trainer']", "[" * 5000 + "]" * 5000),
    "another condition": "from setuptools import setup\nif len('a') == 1:\n    setup(name='t')\n",
}


@pytest.mark.parametrize("kind", RUN)
def test_what_is_not_plain_is_left_to_be_run(tmp_path: Path, kind: str) -> None:
    assert static_setup.read(write(tmp_path, {"setup.py": RUN[kind], **MODULES})) is None


@pytest.mark.parametrize(
    "name",
    [
        *("setup.cfg", "pyproject.toml", "MANIFEST.in", "build/lib/trainer/old.py"),
        *("LICENSE", "trainer.egg-info/PKG-INFO", "setuptools.py", "distutils/__init__.py"),
        *("trainer/py.typed", "trainer/task.pyi", "src/other/__init__.py"),
    ],
)
def test_what_else_decides_of_a_build_has_it_run(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"setup.py": PLAIN, **MODULES})
    assert static_setup.read(tmp_path) is not None
    write(tmp_path, {name: ""})
    assert static_setup.read(tmp_path) is None


def test_links_are_left_to_setuptools(tmp_path: Path) -> None:
    text = PLAIN.replace("['trainer']", "find_packages()").replace(
        "setup\n", "setup, find_packages\n"
    )
    write(tmp_path, {"setup.py": text, **MODULES})
    assert static_setup.read(tmp_path) is not None
    for number in range(8):  # each a circle: a walk that follows them would not end
        (tmp_path / "trainer" / f"circle_{number}").symlink_to("..", target_is_directory=True)
    (tmp_path / "__init__.py").touch()
    assert static_setup.read(tmp_path) is None
