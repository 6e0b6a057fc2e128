"""One resolution per job: what exactly will be installed, as a lock with hashes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_ml.environments import process
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.packages.requirements import (
    Requirement,
    locked_versions,
    normalise_name,
    parse,
    without_secrets,
)
from cloud_ml.environments.packages.uv import Uv
from cloud_ml.environments.packages.versions import satisfies
from cloud_ml.environments.runtime import Runtime
from cloud_ml.environments.trainers.source_files import read_text

LOCK_BYTES = 4 << 20
"""Of a lock: 200 packages with the hashes of all their files take half a megabyte."""
_UNKNOWN = re.compile(
    rb"Because (\S+)\s+was\s+not\s+found\s+in\s+the\s+package\s+registry\s+and\s+you\s+require\s+(\S+)"
)
_RETRIED = re.compile(r"Request failed after \d+ retries")


_PLAIN = "python"
"""The runtime that needs no package."""


class NoSolution(EnvironmentFailed):
    """uv has looked and found nothing; ``words`` are its own, and the message holds the first of
    its reasons.
    """

    def __init__(self, words: bytes) -> None:
        why = (
            without_secrets(first_reason(words.decode("utf-8", "replace")))
            or "see the log for uv's words"
        )
        super().__init__("EnvironmentFailed", f"the requirements cannot be resolved: {why}")
        self.words = words

    def beside(self, runtime: Runtime) -> NoSolution:
        """The same failure, which names the runtime where one of its requirements is in uv's way:
        the user has not written that one.
        """
        needed = [
            text
            for text in runtime.requires
            if re.search(rb"you\s+require\s+%s(?![\w-])" % _name_of(text), self.words)
        ]
        if needed and runtime.name != _PLAIN:
            self.message = (
                f"{self.message.rstrip('.')}. The runtime {runtime.name} {runtime.version} needs "
                f"{', '.join(needed)}; with -F {_PLAIN} only your requirements count"
            )
        return self


def _name_of(requirement: str) -> bytes:
    return re.escape(parse(requirement).name).encode()


def is_unknown_package(words: bytes) -> bool:
    """Whether uv says that no index has a package which the job requires itself. No other
    versions and no builds help then.
    """
    found = _UNKNOWN.search(words)
    return found is not None and normalise_name(found[2].decode("utf-8", "replace")).startswith(
        normalise_name(found[1].decode("utf-8", "replace"))
    )


def first_reason(words: str, limit: int = 300) -> str:
    """What uv says is wrong, as one line: what follows its arrow, else its error's cause, else
    the error.
    """
    plain = re.sub(r"(?m)^ *\^+$", "", re.sub(r"\x1b\[[0-9;]*m", "", words))  # carets below a line
    text = re.sub(r"\s+", " ", plain).strip()
    for mark in ("╰─▶ ", "cause: ", "error: "):
        if mark in text:
            causes = [
                one.strip()
                for one in text.partition(mark)[2].partition(" hint: ")[0].split(" cause: ")
            ]
            # The following causes name the failed request; the last one gives the reason.
            if _RETRIED.match(causes[0]) and len(causes) > 1:
                causes = causes[1:]
            reason = f"{causes[0]}: {causes[-1]}" if len(causes) > 1 else causes[0]
            if " fatal: " in reason:  # git's last word, behind a command line
                reason = f"git: {reason.rpartition(' fatal: ')[2]}"
            return _shorten_reason(reason, limit)
    return ""


def _shorten_reason(reason: str, limit: int) -> str:
    """At most ``limit`` characters. Of a conflict the end is kept: there uv names what the job
    requires.
    """
    if len(reason) <= limit:
        return reason
    if not reason.startswith("Because "):
        return reason[: limit - 1] + "…"
    end = reason[2 - limit :]
    sentence = end.find(" And because ")
    return "… " + (end[sentence + 1 :] if sentence >= 0 else end.partition(" ")[2] or end)


@dataclass(frozen=True)
class Question:
    """What is to be resolved: ``requires`` within ``constraints``, with ``overrides`` in place
    of any other word. Without ``dependencies``, what they require themselves is left out.
    """

    requires: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    dependencies: bool = True


def held_back(lock: str, newest: str) -> frozenset[str]:
    """Names that ``lock`` has in another version than ``newest``."""
    chosen, best = locked_versions(lock), locked_versions(newest)
    return frozenset(name for name, version in best.items() if chosen.get(name) != version)


def check_forbidden(lock: str, runtime: Runtime) -> None:
    """Refuse a lock that holds what the runtime forbids: gigabytes for a GPU, say.

    Raises:
        EnvironmentFailed: With the names.
    """
    found = [
        name
        for name in locked_versions(lock)
        if any(fnmatch.fnmatchcase(name, each) for each in runtime.forbids)
    ]
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise EnvironmentFailed(
            "EnvironmentFailed",
            f"the requirements bring {found[0]}{more}, which the runtime {runtime.label} does not "
            "take: leave out pins of the framework, or choose framework python, which installs "
            "what the trainer requires",
        )


def without_forbidden(
    runtime: Runtime, requirements: Iterable[Requirement]
) -> tuple[list[Requirement], list[str]]:
    """Requirements without pins of what the runtime forbids, and a sentence about them.

    A lock that was made beside a GPU pins the parts of the framework's GPU build. Here they are not
    needed.
    """
    left: list[Requirement] = []
    dropped: list[str] = []
    for one in requirements:
        pinned = one.specifier.startswith("==")
        if pinned and any(fnmatch.fnmatchcase(one.name, each) for each in runtime.forbids):
            dropped.append(one.name)
        else:
            left.append(one)
    if not dropped:
        return left, []
    more = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
    return left, [
        f"the pin of {dropped[0]}{more} is left out, because {runtime.label} is a CPU build"
    ]


def make_room(runtime: Runtime, requirements: Iterable[Requirement]) -> tuple[Runtime, list[str]]:
    """The runtime without its own pins that the trainer's contradict, and sentences about them."""
    constrained = {one.name: one for one in requirements if one.specifier and not one.url}
    given_way: list[str] = []
    notices: list[str] = []
    for text in runtime.requires:
        own = parse(text)
        pinned = own.specifier.removeprefix("==").removesuffix(".*")
        other = constrained.get(own.name)
        if other and own.specifier.startswith("==") and not satisfies(pinned, other.specifier):
            given_way.append(text)
            notices.append(
                f"the trainer requires {other.text}: it is taken instead of {text} of "
                f"{runtime.label}"
            )
    if not given_way:
        return runtime, []
    left = tuple(text for text in runtime.requires if text not in given_way)
    return replace(runtime, requires=left), notices


def fit(
    runtime: Runtime, requirements: Iterable[Requirement]
) -> tuple[list[Requirement], list[str]]:
    """The requirements that are left once the runtime has stood in for some, and sentences about
    others' pins.

    Raises:
        EnvironmentFailed: The runtime stands in for a distribution with a version that is not
            wanted.
    """
    provided = {normalise_name(name): version for name, version in runtime.provides.items()}
    left: list[Requirement] = []
    notices: list[str] = []
    for one in requirements:
        version = provided.get(one.name)
        if version is None:
            left.append(one)
        elif one.url or not satisfies(version, one.specifier):
            if not runtime.lenient:
                raise EnvironmentFailed(
                    "EnvironmentFailed",
                    f"the trainer requires {one.shown}, the runtime {runtime.label} provides "
                    f"{one.name} {version}: change the requirement, or choose framework python, "
                    "which installs what the trainer requires",
                )
            notices.append(f"the requirement {one.shown} is left out: {runtime.label} replaces it")
    return left, notices


def question(runtime: Runtime, local_builds: Mapping[str, str]) -> Question:
    """The question for the bare runtime; builds that the machine offers locally become
    constraints.
    """
    builds = tuple(f"{name}=={version}" for name, version in sorted(local_builds.items()))
    return Question(runtime.requires, (*runtime.constraints, *builds), runtime.overrides)


def ask(
    question: Question, *, uv: Uv, interpreter: Interpreter, folder: Path, offline: bool = False
) -> str:
    """The lock: ``name==version`` with hashes for everything that is needed. ``folder`` is for
    scratch files.

    Raises:
        NoSolution: There is no answer.
        EnvironmentFailed: uv could not be run to its end.
    """
    if not question.requires:
        return ""
    files = {
        "requirements": question.requires,
        "constraints": question.constraints,
        "overrides": question.overrides,
    }
    arguments = ["compile", "--generate-hashes", "--no-header", "--no-annotate"]
    for name, lines in files.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for name in ("constraints", "overrides"):
        arguments += [f"--{name}", str(folder / f"{name}.txt")] if files[name] else []
    arguments += [] if question.dependencies else ["--no-deps"]
    arguments += ["--output-file", str(out / "lock.txt"), str(folder / "requirements.txt")]
    words = process.OutputTail()
    code = uv.run(
        arguments,
        output=words,
        interpreter=interpreter,
        reads=[folder / f"{name}.txt" for name in files],
        writes=[out],
        offline=offline,
    )
    lock = read_lock(out / "lock.txt") if code == 0 else None
    if lock is None:
        raise NoSolution(words.kept)
    return lock


def read_lock(path: Path) -> str | None:
    """The text of a lock that a tenant's process may have written: a plain file of sane size, or
    None.
    """
    try:
        return read_text(path, LOCK_BYTES)
    except (OSError, ValueError):
        return None


def entries(lock: str) -> dict[str, str]:
    """Name to the lock's whole entry, hashes and all."""
    found: dict[str, list[str]] = {}
    entry: list[str] = []
    for line in lock.splitlines(keepends=True):
        if line[:1].isspace():
            entry.append(line)
        elif line.strip() and not line.startswith("#"):
            entry = [line]
            found[next(iter(locked_versions(line)), line.split(" ", 1)[0])] = entry
    return {name: "".join(lines) for name, lines in found.items()}


def pins(lock: str) -> tuple[str, ...]:
    """The lock as constraints."""
    return tuple(f"{name}=={version}" for name, version in locked_versions(lock).items())


def beyond(lock: str, base: str) -> str:
    """The part of ``lock`` that ``base`` does not hold."""
    known = entries(base)
    return "".join(entry for name, entry in entries(lock).items() if name not in known)


def merge_locks(*locks: str) -> str:
    """One lock of several, sorted by name."""
    every: dict[str, str] = {}
    for lock in locks:
        every.update(entries(lock))
    return "".join(every[name] for name in sorted(every))


def names(requirements: Sequence[Requirement]) -> set[str]:
    """The names that are required."""
    return {requirement.name for requirement in requirements}
