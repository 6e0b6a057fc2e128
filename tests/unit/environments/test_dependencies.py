"""What code requires, in each of the files in which people say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.environments.builder import dependencies, locks
from cloud_ml.environments.builder.dependencies import Declared
from cloud_ml.environments.packages.requirements import BadRequirement

UV_LOCK = """
version = 1
requires-python = ">=3.11"

[[package]]
name = "churn"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "colorama", marker = "sys_platform == 'win32'" },
    { name = "requests" },
    { name = "requests", extra = ["socks"] },
    { name = "six" },
    { name = "shared" },
]
[package.dev-dependencies]
dev = [{ name = "pytest" }]

[[package]]
name = "colorama"
version = "0.4.6"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "pytest"
version = "9.2.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "pysocks"
version = "1.7.1"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "requests"
version = "2.34.2"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "colorama", marker = "python_version < '3'" }, { name = "requests" }]
[package.optional-dependencies]
socks = [{ name = "pysocks" }]

[[package]]
name = "six"
version = "1.16.0"
source = { git = "https://github.com/benjaminp/six?rev=1.16.0&subdirectory=src#65486e43" }

[[package]]
name = "shared"
version = "1.0"
source = { editable = "../shared" }
"""
PYLOCK = """
lock-version = "1.0"
[[packages]]
name = "numpy"
version = "2.3.0"
marker = "python_version >= '3.11'"
[[packages]]
name = "pytest"
version = "9.0"
marker = "'dev' in dependency_groups"
[[packages]]
name = "mine"
archive = { url = "https://example.org/mine-1.0.zip" }
[[packages]]
name = "ours"
vcs = { type = "git", url = "https://example.org/ours.git", commit-id = "abc" }
[[packages]]
name = "local"
directory = { path = "." }
"""
SCRIPT = """#!/usr/bin/env python
# /// script
# requires-python = ">=3.12"
# dependencies = [
#   "rich>=13",
#
#   "tqdm",
# ]
# ///

# /// other
# dependencies = 5
# ///
import rich
"""


def read(folder: Path, *, module: str = "train", built: bool = False, **files: str) -> Declared:
    for name, text in files.items():
        place = folder / name.replace("__", "/").replace("_dot_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return dependencies.read(folder, module, built=built)


def test_a_project_without_a_build_says_what_it_requires(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\nrequires-python = ">=3.12"\ndependencies = ["numpy>=2"]\n'
    declared = read(tmp_path, pyproject_dot_toml=text, requirements_dot_txt="tqdm\n")
    assert declared == Declared(["tqdm", "numpy>=2"], [], [("pyproject.toml", ">=3.12")])
    assert read(tmp_path, built=True).requires == ["tqdm"], (
        "the metadata of what was built says the rest"
    )


def test_files_of_requirements_name_others(tmp_path: Path) -> None:
    declared = read(
        tmp_path,
        requirements_dot_txt="-r requirements/base.txt  # shared\n--requirement=extra.txt\ntqdm\n",
        requirements__base_dot_txt="numpy\n-r ../extra.txt\n-i https://example.org\n",
        extra_dot_txt="six\n",
    )
    assert sorted(declared.requires) == ["numpy", "six", "tqdm"]
    assert [notice[:51] for notice in declared.notices] == [
        "requirements/base.txt: the option '-i' is left out;"
    ]


@pytest.mark.parametrize("name", ["absent.txt", "../outside.txt", "/etc/passwd", "link.txt"])
def test_a_file_of_requirements_that_is_not_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.txt").write_text("six")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "link.txt").symlink_to("../outside.txt")
    with pytest.raises(
        BadRequirement, match=f"{Path(name).name}: (it was not sent|it is not in the folder)"
    ):
        read(tmp_path / "code", requirements_dot_txt=f"-r {name}\n")


def test_a_lock_of_uv_gives_exact_versions(tmp_path: Path) -> None:
    declared = read(tmp_path, uv_dot_lock=UV_LOCK, requirements_dot_txt="requests>=1\n")
    assert sorted(declared.requires) == [
        "colorama==0.4.6 ; (python_version < '3') or (sys_platform == 'win32')",
        "pysocks==1.7.1",
        "requests==2.34.2",
        "six @ git+https://github.com/benjaminp/six@65486e43#subdirectory=src",
    ]
    assert declared.notices == [
        "uv.lock: shared of this machine's folders or of unknown origin is left out",
        "requirements.txt is not read, because uv.lock has the exact versions",
    ]


def test_a_pylock_gives_exact_versions(tmp_path: Path) -> None:
    declared = read(tmp_path, pylock_dot_toml=PYLOCK, uv_dot_lock="never read")
    assert declared.requires == [
        "numpy==2.3.0 ; python_version >= '3.11'",
        "mine @ https://example.org/mine-1.0.zip",
        "ours @ git+https://example.org/ours.git@abc",
    ]
    assert "local" in declared.notices[0]


@pytest.mark.parametrize("module", ["train", "tools.train"])
def test_a_script_says_in_itself_what_it_requires(tmp_path: Path, module: str) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / Path(*module.split("."))).with_suffix(".py").write_text(SCRIPT)
    declared = read(tmp_path, module=module, other_dot_py=SCRIPT.replace("rich", "other"))
    assert declared.requires == ["rich>=13", "tqdm"]
    assert declared.pythons == [(f"{module.replace('.', '/')}.py", ">=3.12")]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train_dot_py": "# /// script\n# dependencies = 1\n# "
                          "///\n"}, "train.py: dependencies is not a list"),
        ({"train_dot_py": "# /// script\n# dependencies = [\n# "
                          "///\n"}, "train.py: it is not valid TOML"),
        ({"train_dot_py": "# /// script\n# ///\n" + "\n# /// script\n# "
                                                    "///\n"}, "train.py: it has several"),
        ({"train_dot_py": '# /// script\n# dependencies = ["-r x"]\n# '
                          '///\n'}, "train.py: '-r x' is not a requirement"),
        ({"uv_dot_lock": "version = 1"}, "uv.lock: package is not a list of tables"),
        ({"uv_dot_lock": "[[package]]\nname = "
                         "'x'\n"}, "uv.lock: no package in it is the project of this folder"),
        ({"pylock_dot_toml": "["}, "pylock.toml: it is not valid TOML"),
        ({"pylock_dot_toml": '[[packages]]\nname = "x\\n-r y"\nversion = '
                             '"1"'}, "pylock.toml: .* more than one line"),
        ({"pylock_dot_toml": "[[packages]]\nname = 5\n"}, "pylock.toml: name is not a text"),
        ({"pyproject_dot_toml": "[project]\ndependencies = "
                                "[1]\n"}, "pyproject.toml: dependencies is not a list"),
        ({"pyproject_dot_toml": "a = " + "[" * 5000}, "pyproject.toml: it is not valid TOML"),
        ({"requirements_dot_txt": "a @ file:///etc/passwd"}, "requirements.txt: .* refers to "
                                                             "something other"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_by_its_file(
    tmp_path: Path, files: dict[str, str], words: str
) -> None:
    with pytest.raises(BadRequirement, match=words):
        read(tmp_path, **files)


def test_a_lock_that_leads_round_in_many_ways_ends() -> None:
    """Each package requires all others, under a marker of its own."""
    names = [f"p{number}" for number in range(40)]
    edges = ", ".join(
        f"{{ name = '{name}', marker = \"python_version > '{name[1:]}'\" }}" for name in names
    )
    body = "".join(
        f"[[package]]\nname = '{name}'\nversion = '1'\nsource = {{ registry = 'x' "
        f"}}\ndependencies = [{edges}]\n"
        for name in names
    )
    root = f"[[package]]\nname = 'root'\nversion = '1'\nsource = {{ virtual = '.' }}\ndependencies = [{edges}]\n"
    lines, _ = locks.from_uv_lock(root + body)
    assert len(lines) == len(names)
    assert max(map(len, lines)) < 2000


def test_more_packages_than_may_be_are_counted() -> None:
    text = "".join(f"[[packages]]\nname = 'p{number}'\nversion = '1'\n" for number in range(1001))
    with pytest.raises(BadRequirement, match="it has 1001 packages; allowed are 1000"):
        locks.from_pylock(text)
