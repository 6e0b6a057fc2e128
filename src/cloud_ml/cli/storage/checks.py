"""Refuses plans whose outcome would depend on their order, before anything is copied or removed."""

from __future__ import annotations

import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud_ml.cli.storage.plan import Item, Plan, are_several, base_name, below, is_remote
from cloud_ml.errors import InvalidRequest

_SHOWN = 5
"""How many names an error shows."""


class ConflictingPlan(InvalidRequest):
    """Two copies of one plan affect each other. Nothing was copied."""


def check_folders(sources: Sequence[str], target: str) -> None:
    """Refuse to copy a folder of the server to itself or into itself.

    Raises:
        ConflictingPlan: The target of a folder is the folder or lies in it.
    """
    if not is_remote(target):
        return
    for source in sources:
        base = below(target, base_name(source)) if are_several(sources) else target
        if is_remote(source) and _folder(base).startswith(_folder(source)):
            raise _refusal(
                f"{base} is {source} or lies in it: a folder cannot be copied into itself",
                base,
                hint="Name a target outside of the source.",
            )


def check_plan(plan: Plan, *, same_file: Callable[[Path, str, str], bool] | None = None) -> None:
    """Leave out repeated pairs, and refuse the plan if copies would overwrite each other or their
    sources.

    Args:
        plan: What to copy; changed in place.
        same_file: Says whether two names mean one file in a folder; the file system is asked by
            default.

    Raises:
        ConflictingPlan: The message shows the names.
    """
    plan.items = list(dict.fromkeys(plan.items))
    sources = {item.source for item in plan.items}
    onto_itself = [item.source for item in plan.items if item.source == item.target]
    if onto_itself:
        raise _refusal(f"{_names(onto_itself)}: source and target are the same", onto_itself[0])
    overwritten = [item.target for item in plan.items if item.target in sources]
    if overwritten:
        raise _refusal(
            f"{_names(overwritten)}: a source of this command is also a target of it",
            overwritten[0],
        )
    by_target: dict[str, list[Item]] = defaultdict(list)
    folders: dict[Path, Path] = {}
    for item in plan.items:
        by_target[_identity(item, folders)].append(item)
    for items in by_target.values():
        if len(items) > 1:
            raise _shared_target(items)
    files = {target: items[0] for target, items in by_target.items() if items[0].down}
    _check_spelling(files, same_file or names_mean_one_file)


def _check_spelling(files: Mapping[str, Item], same_file: Callable[[Path, str, str], bool]) -> None:
    """Refuse local targets that differ only in case or Unicode form, where the file system takes
    them for one.
    """
    spellings: dict[str, str] = {}
    for target, item in files.items():
        other = spellings.setdefault(unicodedata.normalize("NFC", target).casefold(), target)
        if other == target:
            continue
        pairs = zip(Path(other).parts, Path(target).parts, strict=False)
        first, second = next((one, two) for one, two in pairs if one != two)
        if same_file(Path(target), first, second):
            raise _shared_target([files[other], item])


def names_mean_one_file(target: Path, first: str, second: str) -> bool:
    """Whether the file system of ``target`` takes two names for one, as some do with case or
    Unicode forms.
    """
    folder = next((one for one in target.absolute().parents if one.is_dir()), Path("/"))
    try:
        with tempfile.TemporaryDirectory(prefix=".cloudml-", dir=folder) as scratch:
            (Path(scratch) / first).touch()
            return (Path(scratch) / second).exists()
    except OSError:  # the copy itself reports a folder that cannot be written
        return False


def _identity(item: Item, folders: dict[Path, Path]) -> str:
    """The target without links on its way: two paths to one folder are one place.

    ``folders`` remembers what folders are without links.
    """
    if not item.down:
        return item.target
    target = Path(item.target)
    folder = folders.get(target.parent) or folders.setdefault(
        target.parent, target.parent.resolve()
    )
    return str(folder / target.name)


def _shared_target(items: list[Item]) -> ConflictingPlan:
    return _refusal(
        f"{_names([item.source for item in items])} would all become {items[0].target}",
        items[0].target,
        hint="Copy them one by one to different names, or copy their folder with -r.",
    )


def _refusal(message: str, value: str, hint: str | None = None) -> ConflictingPlan:
    return ConflictingPlan(f"{message}; nothing was copied", field="target", value=value, hint=hint)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _folder(uri: str) -> str:
    return uri.rstrip("/") + "/"
