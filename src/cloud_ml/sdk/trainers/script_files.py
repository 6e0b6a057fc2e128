"""What belongs to a single script: modules beside it that it imports, and files that say what it
requires.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.text_encoding import decode_text

REQUIREMENT_FILES = ("requirements.txt", "pylock.toml", "uv.lock", "pyproject.toml")
_BUILT = ("build-system", "scripts", "entry-points", "dynamic")
"""What a ``pyproject.toml`` of a package says, which a script alone is not."""
_MOST_MODULES = 200
_MOST_BYTES = 4 << 20


def companions(script: Path) -> list[Path]:
    """Files and package folders beside ``script`` that belong to it, in the order of their names.

    Nothing else of the folder is looked at: it may be somebody's home.
    """
    folder = script.parent
    found = set(_modules(script))
    for name in REQUIREMENT_FILES:
        file = folder / name
        if file.is_file() and not (name == "pyproject.toml" and _describes_package(file)):
            found.add(file)
    return sorted(found - {script})


def _modules(script: Path) -> Iterator[Path]:
    """Modules and packages beside the script that it, or one of them, imports."""
    folder, waiting, seen = script.parent, [script], {script}
    while waiting and len(seen) <= _MOST_MODULES:
        for name in _list_imports(waiting.pop()):
            place = next(
                (one for one in (folder / name, folder / f"{name}.py") if _is_code(one)), None
            )
            if place is None or place in seen:
                continue
            seen.add(place)
            yield place
            waiting += sorted(place.rglob("*.py"))[:_MOST_MODULES] if place.is_dir() else [place]


def _is_code(place: Path) -> bool:
    if place.suffix == ".py":
        return place.is_file()
    return place.is_dir() and any(place.glob("*.py"))


def _list_imports(file: Path) -> set[str]:
    """Names of the modules that a file imports; none of a file that cannot be read."""
    try:
        text = b"" if file.stat().st_size > _MOST_BYTES else file.read_bytes()
    except OSError:
        return set()
    return list_imports(text) or set()


def list_imports(text: bytes) -> set[str] | None:
    """Names of the modules that a source imports anywhere, without what follows a dot; ``None`` of
    one that this Python cannot parse.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _describes_package(pyproject: Path) -> bool:
    text = decode_text(pyproject.read_bytes(), "replace")
    return any(word in text for word in _BUILT)
