"""A ``setup.py`` that only calls ``setup`` with constants is read and not run.

To run it takes an interpreter in a sandbox and the import of setuptools. Many a trainer has one of
ten lines that say a name, a version, packages and requirements. Their package is laid out here as
setuptools lays it out, and a test builds both ways. Whatever is not known here is run.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_BYTES = 64 * 1024
_OTHERS_DECIDE = (
    *("setup.cfg", "pyproject.toml", "MANIFEST*", "PKG-INFO", "*.egg-info", "build", "src"),
    *("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*"),
    *("setuptools*", "distutils*", "_distutils_hack*", "pkg_resources*"),
)
"""Names beside ``setup.py`` that change what setuptools makes of it, or which setuptools it is."""
_DATA = (".pyi", "py.typed")
"""Endings of files that setuptools packs beside modules."""
_FUNCTIONS = ("setup", "find_packages")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*")
_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>|~=(?=[^.]*\.)) *([0-9]+(?:\.[0-9]+)*)")
_LINES = {
    "description": "Summary",
    "url": "Home-page",
    "author": "Author",
    "author_email": "Author-email",
    "license": "License",
}
"""Arguments of ``setup`` → the field of the metadata; in the order of setuptools."""
_IGNORED = ("zip_safe", "include_package_data")
"""Without ``MANIFEST.in`` and the data files above, they change nothing of a wheel."""


@dataclass(frozen=True)
class Setup:
    """What such a ``setup.py`` says. ``metadata`` is the text of ``METADATA``."""

    name: str
    version: str
    packages: tuple[str, ...]
    metadata: str


class _NotStatic(Exception):
    """It has to be run."""


def read(root: Path) -> Setup | None:
    """What the ``setup.py`` in ``root`` says; ``None`` if it has to be run."""
    try:
        if any(fnmatchcase(entry.name, one) for entry in root.iterdir() for one in _OTHERS_DECIDE):
            return None
        file = root / "setup.py"
        if file.is_symlink() or file.stat().st_size > _BYTES:
            return None
        return _setup(root, _Reader(root).arguments(ast.parse(file.read_bytes())))
    except (_NotStatic, OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def lay_out(root: Path, setup: Setup, target: Path) -> None:
    """Fill ``target`` with what the wheel of the project in ``root`` holds."""
    for package in setup.packages:
        folder = target.joinpath(*package.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        for module in _modules(root, package):
            shutil.copyfile(module, folder / module.name)
    stem = re.sub(r"[-_.]+", "_", setup.name).lower()
    info = target / f"{stem}-{setup.version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(setup.metadata)
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: cloud-ml\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    tops = sorted({package.split(".")[0] for package in setup.packages})
    (info / "top_level.txt").write_text("".join(f"{name}\n" for name in tops))
    record = info / "RECORD"
    lines = [_record(file, target) for file in sorted(target.rglob("*")) if file.is_file()]
    record.write_text("".join([*lines, f"{record.relative_to(target)},,\n"]))


def _record(file: Path, top: Path) -> str:
    content = file.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{file.relative_to(top)},sha256={digest},{len(content)}\n"


class _Reader:
    """Follows the statements of a file as far as they are plain.

    ``arguments`` gives the keyword arguments of its one call of ``setup``.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: dict[str, Any] = {}
        self._imported: set[str] = set()

    def arguments(self, module: ast.Module) -> Mapping[str, Any]:
        """Raises ``_NotStatic`` where it is not plain."""
        *before, last = module.body
        for statement in before:
            self._note(statement)
        while isinstance(last, ast.If) and _runs_as_program(last):
            *before, last = last.body
            for statement in before:
                self._note(statement)
        match last:
            case ast.Expr(value=ast.Call(func=function, args=[], keywords=keywords)):
                if self._function(function) == "setup":
                    return self._keywords(keywords)
        raise _NotStatic

    def _note(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                return
            case ast.ImportFrom(module="__future__"):
                return
            case ast.ImportFrom(module="setuptools", names=names, level=0):
                self._import([(alias.name, alias.asname) for alias in names], _FUNCTIONS)
            case ast.Import(names=names):
                self._import([(alias.name, alias.asname) for alias in names], ("setuptools",))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if name.startswith("__") or name in (*_FUNCTIONS, "setuptools"):
                    raise _NotStatic
                self._names[name] = self._value(value)
            case _:
                raise _NotStatic

    def _import(self, names: Iterable[tuple[str, str | None]], known: Sequence[str]) -> None:
        for name, alias in names:
            if name not in known or alias is not None:
                raise _NotStatic
            self._imported.add(name)

    def _function(self, node: ast.expr) -> str:
        """The function of setuptools that is called."""
        match node:
            case ast.Name(id=name) if name in self._imported and name in _FUNCTIONS:
                return name
            case ast.Attribute(value=ast.Name(id="setuptools"), attr=name):
                if "setuptools" in self._imported and name in _FUNCTIONS:
                    return name
        raise _NotStatic

    def _keywords(self, keywords: Sequence[ast.keyword]) -> Mapping[str, Any]:
        found = {one.arg: self._value(one.value) for one in keywords if one.arg is not None}
        if len(found) < len(keywords):  # an unpacked mapping, or a name that comes twice
            raise _NotStatic
        return found

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | bool() as value):
                return value
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self._value(element) for element in elements]
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Call(func=function, args=[], keywords=[]):
                if self._function(function) == "find_packages":
                    return list(_find_packages(self._root))
        raise _NotStatic


def _runs_as_program(statement: ast.If) -> bool:
    match statement:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value="__main__")],
            ),
            orelse=[],
        ):
            return True
    return False


def _find_packages(folder: Path, above: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if "." in entry.name or not (entry / "__init__.py").is_file():
            continue
        # Links may lead in a circle.
        if entry.is_symlink() or entry.name == "ez_setup" or entry.name.endswith("__pycache__"):
            raise _NotStatic
        yield f"{above}{entry.name}"
        yield from _find_packages(entry, f"{above}{entry.name}.")


def _setup(root: Path, arguments: Mapping[str, Any]) -> Setup:
    rest = dict(arguments)
    name, version = _match(_NAME, rest.pop("name", "")), _match(_VERSION, rest.pop("version", ""))
    packages = _texts(rest.pop("packages", []))
    if not packages or len({*packages}) < len(packages):
        raise _NotStatic
    for package in packages:
        if not all(part.isidentifier() and part.isascii() for part in package.split(".")):
            raise _NotStatic
        list(_modules(root, package))
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"{field}: {_line(rest.pop(key))}" for key, field in _LINES.items() if key in rest]
    classifiers = _texts(rest.pop("classifiers", []))
    lines += [f"Classifier: {_line(classifier)}" for classifier in classifiers]
    if "python_requires" in rest:
        python = _line(rest.pop("python_requires"))
        _specifiers(python)
        lines.append(f"Requires-Python: {python}")
    requires = [_requirement(text) for text in _texts(rest.pop("install_requires", []))]
    if len({*requires}) < len(requires):
        raise _NotStatic
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    if any(key not in _IGNORED or not isinstance(value, bool) for key, value in rest.items()):
        raise _NotStatic
    return Setup(name, version, tuple(packages), "".join(f"{line}\n" for line in lines))


def _modules(root: Path, package: str) -> Iterator[Path]:
    """The files of a package that setuptools packs."""
    folder = root
    for part in package.split("."):
        folder /= part
        if folder.is_symlink():
            raise _NotStatic
    for entry in folder.iterdir():
        if entry.is_symlink() or entry.name.endswith(_DATA):
            raise _NotStatic
        if entry.name.endswith(".py") and not entry.name.startswith("."):
            if not entry.is_file():
                raise _NotStatic
            yield entry


def _requirement(text: str) -> str:
    """A requirement as ``packaging`` writes it."""
    found = re.match(r"[A-Za-z0-9._-]+", text)
    if found is None:
        raise _NotStatic
    clauses = text[found.end() :].strip()
    return _match(_NAME, found[0]) + (_specifiers(clauses) if clauses else "")


def _specifiers(text: str) -> str:
    found = [_CLAUSE.fullmatch(clause.strip()) for clause in text.split(",")]
    clauses = [clause[1] + clause[2] for clause in found if clause is not None]
    if len({*clauses}) < len(found):
        raise _NotStatic
    return ",".join(sorted(clauses))


def _match(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _NotStatic
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _NotStatic
    return value


def _line(value: object) -> str:
    """A text of one line in ASCII, which metadata holds as it is."""
    if not isinstance(value, str) or not value.strip() or value != value.strip():
        raise _NotStatic
    if not (value.isascii() and value.isprintable()):
        raise _NotStatic
    return value
