"""From a trainer's files, an operator's files and an installer's words to an environment."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import warnings

import click
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Reference
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from cloud_ml.cli.jobs.requirement_options import read_requirements
from cloud_ml.engines.local.failures import explain
from cloud_ml.engines.local.failures import files as missing_files
from cloud_ml.engines.local.failures.explain import FailureContext
from cloud_ml.engines.local.failures.files import CodeFolder
from cloud_ml.environments import files, runtimefile
from cloud_ml.environments.builder import dependencies, locks, source, static_setup
from cloud_ml.environments.interpreter import from_answer
from cloud_ml.environments.packages import pipconfig, requirements, resolve, versions
from cloud_ml.environments.runtime import BadRuntime
from cloud_ml.environments.trainers import detect, source_scan
from cloud_ml.sdk.trainers.script_files import companions
from fuzz.harness import pieces, scratch, target, text

_PLAIN = re.compile(r"\d{1,6}(\.\d{1,6}){0,4}", re.ASCII)
_PLAIN_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\d{1,6}(\.\d{1,6}){0,4}", re.ASCII)


@target(
    "environments.packages.requirements",
    seeds=["numpy>=1.2,<3 # x\ntorch==2.1 ; python_version < '3'\n-r "
           "other.txt\n--index-url=https://u:p@h/s\n",
           "a @ https://u:secret@host/x.whl\nb[c,d] (>=1) \\\n "
           "--hash=sha256:00", "git+https://h/x", "a @ file:///etc"],
    words=["==", ">=", "~=", "@ ", "https://", "git+ssh://", "-e ", "--hash", ";", "[", "]", "\\\n", "#", "user:pw@"],
)  # fmt: skip
def requirement_lines(data: bytes) -> None:
    """Refused with a reason that holds no secret, or lines that name packages, as the reference
    reads them.
    """
    try:
        lines, _ = requirements.from_file_text(text(data))
    except requirements.BadRequirement as error:
        assert requirements.without_secrets(str(error)) == str(error)  # noqa: PT017
        return
    for one in requirements.parse_all(lines):
        assert not one.text.startswith("-")
        assert one.name == requirements.normalise_name(one.name)
        with contextlib.suppress(InvalidRequirement):
            reference = Reference(one.text)
            assert canonicalize_name(reference.name) == one.name
            assert bool(reference.url) == one.url


@target(
    "environments.builder.dependencies",
    "environments.builder.locks",
    seeds=["# /// script\n# dependencies = ['six']\n# ///\n\0version = 1\n[[package]]\nname = "
           "'x'\nversion = '1'\n"
           "source = { virtual = '.' }\ndependencies = [{ name = 'y', extra = ['e'] "
           "}]\n[[package]]\nname = 'y'\n"
           "version = '2'\nsource = { git = 'https://h/y?subdirectory=s#c' "
           "}\noptional-dependencies = { e = [] }\n"
           "\0[[packages]]\nname = 'z'\nversion = '3'\nmarker = 'a'\nvcs = { type = 'git', "
           "url = 'u' }\n"
           "\0[project]\ndependencies = ['a']\n\0-r b.txt\n-r ../c\n"],
    words=["# ///", "script", "[[package", "]]", "name =", "source =", "git", "url", "directory", "marker", "-r ", "'", "{"],
)  # fmt: skip
def declared_dependencies(data: bytes) -> None:
    """Refused with the file's name, or requirements that name packages, each on one line."""
    with scratch() as folder:
        names = ("task.py", "uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt")
        for name, content in zip(names, pieces(data, len(names)), strict=True):
            (folder / name).write_bytes(content)
        for left_out in ("pylock.toml", "uv.lock", ""):
            try:
                declared = dependencies.read(folder, "task", built=False)
            except requirements.BadRequirement as error:
                assert str(error).partition(":")[0]  # noqa: PT017
            else:
                assert len(declared.requires) <= 2 * locks.MOST_PACKAGES
                assert all(
                    "\n" not in one.text and one.text[:1] != "-"
                    for one in requirements.parse_all(declared.requires)
                )
            if left_out:
                (folder / left_out).unlink()


@target(
    "cli.jobs.requirement_options",
    "sdk.trainers.script_files",
    seeds=["torch==2.9 --hash=sha256:00\n# why\n-r more.txt\n\0import more, json\nfrom more.x "
           "import y\n", "-i x\0def f("],
    words=["-r ", "--requirement=", "more.txt", "\\\n", "#", "import ", "from ", "more", "\0", "(", "--hash"],
)  # fmt: skip
def files_beside_a_script(data: bytes) -> None:
    """Refused by the command's own error, or lines without options; a script never leads out of
    its folder.
    """
    listed, script = pieces(data, 2)
    with scratch() as folder:
        (folder / "r.txt").write_bytes(listed)
        (folder / "more.txt").write_text("six\n")
        (folder / "more.py").write_text("import task\n")
        (folder / "task.py").write_bytes(script)
        with contextlib.suppress(click.UsageError):
            assert not [
                line
                for line in read_requirements(folder / "r.txt")
                if line.startswith("-") or "\n" in line
            ]
        assert set(companions(folder / "task.py")) <= {folder / "more.py"}


@target(
    "environments.packages.versions",
    "environments.packages.requirements",
    seeds=["1.2.3\0>=1.0,<2", "2.21.0rc1\0~=2.1", "1!2\0==1.*,!=1.5", "v1\0===1", "1\0>\u0661", "1\0==" + "9" * 5000],
    words=["==", ">=", "<=", "~=", "!=", ".*", ",", "rc1", "+local", "1!"],
)  # fmt: skip
def version_words(data: bytes) -> None:
    """Never an error; where a specifier is plain, the answer is the reference's."""
    version, specifier = map(text, pieces(data, 2))
    requirements.locked_versions(specifier)
    versions.release(version)
    met = versions.satisfies(version, specifier)
    if _PLAIN.fullmatch(version) and all(
        _PLAIN_CLAUSE.fullmatch(one) for one in specifier.split(",")
    ):
        with contextlib.suppress(InvalidSpecifier):
            assert met == SpecifierSet(specifier).contains(version, prereleases=True)


@target(
    "environments.packages.pipconfig",
    seeds=["[global]\nindex-url = https://user:secret@host/simple\nextra-index-url = a "
           "b\nno-index = true\n",
           "[install]\nfind-links = file:///x "
           "/opt\ncert=/x\nproxy=http://u:p@h\n\0torch-2.1+cpu-cp311-cp311-linux.whl",
           "[global]\nindex-url = http://[\n"],
    words=["[global]", "index-url", "extra-index-url", "find-links", "://", "user:secret@", "%", "file:", "[", "]"],
)  # fmt: skip
def pip_settings(data: bytes) -> None:
    """Never an error, and no secret for processes of tenants."""
    content, wheel = pieces(data, 2)
    with scratch() as folder:
        file = folder / "pip.conf"
        file.write_bytes(content)
        links = folder / "links"
        links.mkdir()
        with contextlib.suppress(OSError):
            (links / text(wheel).replace("/", "").replace("\0", "")).touch()
        read = pipconfig.read({"PIP_FIND_LINKS": str(links), "UV_X": "y"}, [file])
        hidden = (*read.uv_environment(secrets=False).values(), *read.job_environment().values())
        assert not any(re.search(r"://[^/\s]*:secret@", value) for value in hidden)
        read.uv_environment(secrets=True)
        assert (
            read.fingerprint
            == pipconfig.read({"PIP_FIND_LINKS": str(links), "UV_X": "y"}, [file]).fingerprint
        )
        assert all(read.paths)
        read.local_builds("cp311")


@target(
    "environments.runtimefile",
    seeds=['name = "x"\nversion = "1"\nrequires = ["numpy>={python}"]\nbase_memory = '
           '"1G"\n[environment]\nA = "b"\n',
           'name="x"\nversion="1"\npython="*"\nindexes=["https://h/s"]\nrank=5\nimports=["a+b"]\nthreads=["T"]',
           'name="x"\nversion="1"\nindexes=["http://["]', "a=" + "[" * 2000],
    words=["name", "version", "python", "requires", "indexes", "base_memory", "environment", "[[", "]]", '"""', "1e999"],
)  # fmt: skip
def runtime_file(data: bytes) -> None:
    """Refused with the name of the file, or runtimes that are complete."""
    with scratch() as folder:
        file = folder / "one.toml"
        file.write_bytes(data)
        try:
            found = runtimefile.read(file, runtimefile.state_of(str(file)), ("3.10", "3.12"))
        except BadRuntime as error:
            assert "one.toml" in str(error)  # noqa: PT017
            return
        assert all(one.name and one.version for one in found)


@target(
    "environments.trainers.detect",
    "environments.trainers.source_scan",
    "environments.trainers.python2",
    seeds=["import tensorflow as tf\ntf.Session()\nfrom torch import "
           "nn\nos.environ['KERAS_BACKEND']='jax'\n",
           "print 'python 2'\nfor i in xrange(0777L): `i` <> 1\nimport urllib2\nfrom "
           "tensorflow.contrib import "
           "slim\ntf.placeholder(1)", "x = " + "(" * 500, "a" + ".a" * 300, "\ufeffimport keras"],
    words=["import ", "from ", "tensorflow", "tf.", "as ", "KERAS_BACKEND", "(", "\\\n", "\0", "# -*- coding: x -*-", "\t"],
)  # fmt: skip
def trainer_code(data: bytes) -> None:
    """Never an error; nothing is run, nothing grows without bounds."""
    with scratch() as folder:
        (folder / "task.py").write_bytes(data)
        found = detect.read(folder)
        assert detect.read(folder) == found
        assert len(found.packages) <= 1000
        assert (
            max(
                map(
                    len, (found.classic, found.modern, found.python_2, found.absent, found.blocking)
                )
            )
            <= 20
        )
    scanned = source_scan.scan(data)
    lines = text(data).count("\n") + 1
    for name, line in (*scanned.uses, *scanned.first, *scanned.python_2):
        assert 1 <= line <= lines
        assert len(name) <= 200
    with (
        contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        _compare_with_parser(data, scanned)


def _compare_with_parser(data: bytes, scanned: source_scan.SourceScan) -> None:
    """What stands on a line of its own in valid code is found, and nothing that is not in the
    code.
    """
    tree = ast.parse(data)
    plain = {
        one.names[0].name.partition(".")[0] for one in tree.body if isinstance(one, ast.Import)
    }
    every = {name for node in ast.walk(tree) for name in _imported(node)}
    if data.isascii() and not set(data) & set(b"\\\"'\r\f;:#\x0b\x00\t("):
        assert {name for name in plain if len(name) < 50} <= scanned.imports
        assert scanned.imports <= every


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return (
        [node.module.partition(".")[0]] if isinstance(node, ast.ImportFrom) and node.module else []
    )


@target(
    "environments.builder.source",
    seeds=['[build-system]\nrequires = ["setuptools"]\nbuild-backend = '
           '"x"\n', "build-system = 5", "[project]\nname='x'",
           "a=" + "[" * 2000],
    words=["[build-system]", "requires", "build-backend", "backend-path", "project", "[", "]", "="],
)  # fmt: skip
def build_project(data: bytes) -> None:
    """One kind of error, or a backend with what it needs."""
    with scratch() as folder:
        (folder / "pyproject.toml").write_bytes(data)
        source.is_project(folder)
        try:
            project = source.read_project(folder)
        except ValueError as error:
            assert str(error).startswith("pyproject.toml: ")  # noqa: PT017
            return
        assert all(
            isinstance(one, str) for one in itertools.chain(project.requires, project.backend_path)
        )


@target(
    "environments.builder.static_setup",
    seeds=["from setuptools import setup\nsetup(name='t', version='1.0', packages=['p'])\n",
           "from setuptools import find_packages, setup\nR = ['a>=1,<2']\nif __name__ == '__main__':\n"
           "    setup(name='a-b', version='0', packages=find_packages(), install_requires=R, "
           "python_requires='>=3', classifiers=['x'], description='y', zip_safe=False)\n",
           "import setuptools\nsetuptools.setup(name='t', version='1', "
           "packages=setuptools.find_packages())\n",
           "x = " + "(" * 500, "# coding: x\n"],
    words=["setup(", "find_packages()", "name=", "version=", "packages=", "install_requires=", "author=", "if ", "'", "\\n",
           "\n", "[", "]", "**", "../"],
)  # fmt: skip
def setup_program(data: bytes) -> None:
    """It is left to be run, or it is Python whose metadata hold a line for each thing that it says."""
    with scratch() as folder:
        root, target = folder / "root", folder / "target"
        (root / "p" / "q").mkdir(parents=True)
        for package in (root / "p", root / "p" / "q"):
            (package / "__init__.py").touch()
        (root / "setup.py").write_bytes(data)
        setup = static_setup.read(root)
        if setup is None:
            return
        ast.parse(data)
        assert {*setup.packages} <= {"p", "p.q"}
        lines = setup.metadata.splitlines()
        assert lines[:3] == [
            "Metadata-Version: 2.4",
            f"Name: {setup.name}",
            f"Version: {setup.version}",
        ]
        for line in lines:
            name, _, value = line.partition(": ")
            assert name
            if name == "Requires-Dist":
                assert str(Reference(value)) == value
        static_setup.lay_out(root, setup, target)
        info = next(target.glob("*.dist-info"))
        assert {entry.name for entry in target.iterdir()} == {"p", info.name}


@target(
    "environments.packages.resolve",
    "environments.interpreter",
    seeds=["error: a\n  cause: Request failed after 3 retries\n  cause: b\nhint: "
           "c", "  ╰─▶ x fatal: "
                                                                                     "y\n/usr\n3.11.7",
           "a.b.Error: c", "/usr\n3.11", "/\n²"],
    words=["error: ", " cause: ", " hint: ", "╰─▶ ", " fatal: ", "Error: "],
)  # fmt: skip
def words_of_tools(data: bytes) -> None:
    """One line of bounded length, whatever was printed."""
    assert len(resolve.first_reason(text(data))) <= 1000
    with contextlib.suppress(ValueError, OSError):
        from_answer(files.Path("/bin/sh"), text(data))


@target(
    "engines.local.failures.excerpt",
    "engines.local.failures.explain",
    "engines.local.failures.files",
    "engines.local.failures.modules",
    seeds=['Traceback (most recent call last):\n  File "/x/site/a.py", line 3\n    '
           'x\nSyntaxError: bad', "a.b.Error: c",
           "usage: a [--epochs N]\na: error: unrecognized arguments: --epoch "
           "3", "/bin/sh: 2: x: not found",
           "ModuleNotFoundError: No module named "
           "'sklearn.x'", "NameError: name 'xrange' is not defined",
           "FileNotFoundError: [Errno 2] No such file or directory: "
           "'/fds/a/b'", "  | ExceptionGroup: a",
           "FileNotFoundError: x.npy not found.", "Usage: a\n╭─\n│ No such option: --foo "
                                                  "│", "\x1b[31mx\x1b]0;a\x07"],
    words=["Traceback (most recent call "
           "last):\n", '  File "/x/site/a.py", line ', "Error: ", "usage: ", ": error: ",
           "No such file or directory: "
           "'", "No module named '", "/fds/", "fds://", "\x1b[", "\x1b]", "--", "not found"],
)  # fmt: skip
def failure_message(data: bytes) -> None:
    """One printable line of bounded length that begins with the ending, whatever was printed."""
    with scratch() as folder:
        (folder / "train.py").touch()
        context = FailureContext(
            [CodeFolder(str(folder), "/x/site")], "/x/site", command=text(data)
        )
        message = explain.message("ended", data, context, code=data[0] if data else 1)
    assert message.startswith("ended")
    assert message.isprintable()
    assert len(message) <= explain.LONGEST
    missing_files.missing_path(text(data))


@target(
    "environments.files",
    seeds=['{"a": [1, 2.5, null, "x"]}', "[" * 3000, "NaN", '"\\ud800"', "9" * 5000],
    words=["[", "{", '"', "\\u", ":", "1e999", "NaN"],
)
def report(data: bytes) -> None:
    """What a tenant's build left is JSON, or nothing."""
    with scratch() as folder:
        (folder / "report.json").write_bytes(data)
        files.read_json(folder / "report.json")
