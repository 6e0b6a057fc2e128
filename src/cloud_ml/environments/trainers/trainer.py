"""Trainers: from an uploaded file to a folder for the path and what is known about it.

================================  ================================================================
what was uploaded                 what happens
================================  ================================================================
a wheel                           laid out by our own member rules, in a process with the tenant's
                                  user and limits; none of its code runs
a source distribution             built in the tenant's sandbox, once for the same bytes; installed
(a tar with ``PKG-INFO``)
a packed folder with a build      the same; each job also gets a copy of the folder, which comes
                                  first on the path
a packed folder without a build   each job gets a copy of it; ``builder.dependencies`` says what it
                                  requires. A small one is laid out like a wheel
one ``.py`` file                  each job gets a copy of it; a module of that name
================================  ================================================================

For each of them ``folder`` holds the files as they were sent, and ``site`` what is installed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml.environments import inside, interpreter, process
from cloud_ml.environments.base import EnvironmentFailed, EnvironmentRequest, Sandbox
from cloud_ml.environments.builder import sources, wheel
from cloud_ml.environments.files import digest_of, is_real_folder, make_once, read_json, write_json
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages.requirements import BadRequirement, parse_all
from cloud_ml.environments.removing import remove
from cloud_ml.environments.trainers import detect, wheels

_FORMAT = 8
_SMALL_BYTES = 1 << 20
"""A smaller archive unpacks to 200 MiB at most, which takes less than a second."""
_SITE, _FOLDER = "site", "folder"
REPORT_BYTES = 1 << 20
"""Of a report on a trainer, which the tenant's own code may have written."""


@dataclass(frozen=True)
class Trainer:
    """A trainer that is ready for the path.

    ``site`` is what is installed, ``folder`` the files that were sent; at least one of them is
    there. ``src`` tells that modules lie in the subfolder of that name, too. ``requires`` are its
    requirements as written, from its metadata and from files in the folder. ``pythons`` are pairs
    of such a file and what it says of Python's version.
    """

    site: Path | None
    folder: Path | None
    src: bool
    name: str
    version: str
    requires: tuple[str, ...]
    notices: tuple[str, ...]
    findings: detect.Findings
    pythons: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Such as ``trainer 1.0``; a tree without a build has no version."""
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True)
class TrainerBuilder:
    """Stages trainers of one tenant below ``folder``.

    ``layer_for`` gives a layer that holds requirements of a build.
    """

    folder: Path
    locks: Path
    sandbox: Sandbox
    layer_for: Callable[[tuple[str, ...]], Path]
    log: process.Output
    timeout_s: float
    leases: Leases

    def stage(self, request: EnvironmentRequest, file: Path, digest: str) -> Trainer:
        """The trainer in ``file``, whose bytes have the SHA-256 ``digest``.

        Raises:
            EnvironmentFailed: It is no trainer, or its build fails; the build's words are in the
                log.
        """
        name = Path(request.trainer_name).name
        named = name if name.endswith((".whl", ".py")) else ""
        package = (request.module or "").split(".")[0]
        target = self.folder / digest_of(_FORMAT, digest, named, package, interpreter.own().version)
        while True:  # it may be evicted before it is held
            make_once(target, lambda work: self._make(work, request, file, name), locks=self.locks)
            if self.leases.take(target):
                break
        return _trainer(target, read_json(target / "report.json"))

    def _make(self, work: Path, request: EnvironmentRequest, file: Path, name: str) -> None:
        if name.endswith(".whl"):
            self._lay_out_wheel(work, file, name)
        elif not self._lay_out_sources(work, request, file, name):
            self._build(work, request, file, name)

    def _lay_out_wheel(self, work: Path, file: Path, name: str) -> None:
        """Lay a wheel out as the tenant's user, within limits: its names, numbers and code are a
        tenant's.
        """
        wheels.check_tags(name, interpreter.own())
        out = work / "out"
        out.mkdir()
        words = process.OutputTail()
        try:
            code = self._call_on_wheel(out, file, name)
        except OSError as error:
            raise EnvironmentFailed(
                "EnvironmentFailed", f"the trainer cannot be read: {error}"
            ) from error
        if code is None:
            arguments = [str(file), name, str(out)]
            code = inside.call(
                self.sandbox,
                "wheel",
                arguments,
                reads=[file],
                writes=[out],
                timeout_s=self.timeout_s,
                output=words,
            )
        self._take(work, self._report(out, code, words))

    def _call_on_wheel(self, out: Path, file: Path, name: str) -> int | None:
        with file.open("rb") as archive:
            small = os.fstat(archive.fileno()).st_size <= _SMALL_BYTES
            return self.sandbox.call(
                lambda: wheel.stage(archive.fileno(), name, Path()),
                folder=out,
                inputs=[archive.fileno()],
                timeout_s=self.timeout_s,
                small=small,
            )

    def _lay_out_sources(
        self, work: Path, request: EnvironmentRequest, file: Path, name: str
    ) -> bool:
        """Lay small sources out that have no build, in the way of a wheel; false if they want the
        sandbox.
        """
        out = work / "out"
        out.mkdir()
        try:
            with file.open("rb") as archive:
                descriptor = archive.fileno()
                if os.fstat(descriptor).st_size > _SMALL_BYTES:
                    return False
                code = self.sandbox.call(
                    lambda: sources.stage(descriptor, name, request.module, Path()),
                    folder=out,
                    inputs=[descriptor],
                    timeout_s=self.timeout_s,
                    small=True,
                )
        except OSError as error:
            raise EnvironmentFailed(
                "EnvironmentFailed", f"the trainer cannot be read: {error}"
            ) from error
        if code != 0 or read_json(out / "report.json", REPORT_BYTES) == sources.NEEDS_SANDBOX:
            return False
        self._take(work, self._report(out, code, process.OutputTail()))
        return True

    def _build(self, work: Path, request: EnvironmentRequest, file: Path, name: str) -> None:
        """Build in the sandbox, a second time when the first has told what the build needs."""
        needs: tuple[str, ...] = ()
        for _ in range(3):
            report = self._attempt(work / "out", request, file, name, needs)
            if "needs" not in report:
                break
            needs = tuple(dict.fromkeys((*needs, *_check_requirements(_strings(report["needs"])))))
        self._take(work, report)

    def _take(self, work: Path, report: Mapping[str, Any]) -> None:
        """Take over what a process of the tenant has left in ``work/out``."""
        made = [name for name in (_SITE, _FOLDER) if is_real_folder(work / "out" / name)]
        if not made or "name" not in report:
            raise EnvironmentFailed(
                "EnvironmentFailed", "the trainer's build needs more than it says"
            )
        write_json(work / "report.json", report)
        for name in made:
            (work / "out" / name).rename(work / name)
        remove(work / "out")

    def _attempt(
        self, out: Path, request: EnvironmentRequest, file: Path, name: str, needs: tuple[str, ...]
    ) -> Mapping[str, Any]:
        remove(out)
        out.mkdir()
        layers = [self.layer_for(needs)]
        words = process.OutputTail()
        code = inside.call(
            self.sandbox,
            "stage",
            [str(file), name, str(out), request.module or "", *map(str, layers)],
            reads=[file, *layers],
            writes=[out],
            timeout_s=self.timeout_s,
            output=words,
        )
        return self._report(out, code, words)

    def _report(self, out: Path, code: int, words: process.OutputTail) -> Mapping[str, Any]:
        """What a process of the tenant has told, whatever it is.

        Raises:
            EnvironmentFailed: It tells of an error, or did not come to its end.
        """
        report = read_json(out / "report.json", REPORT_BYTES)
        if code or not isinstance(report, dict):
            self.log(words.kept)
            raise EnvironmentFailed("EnvironmentFailed", f"the trainer's build {_ending(code)}")
        if isinstance(error := report.get("error"), dict):
            self.log(words.kept)
            reason = (
                "TrainerInvalid" if error.get("reason") == "TrainerInvalid" else "EnvironmentFailed"
            )
            raise EnvironmentFailed(reason, str(error.get("message"))[:1000])
        return report


def _check_requirements(needs: Sequence[str]) -> Sequence[str]:
    """What a build needs, if it names packages: the platform resolves it, and its own uv would read
    options and files.

    Raises:
        EnvironmentFailed: It names something else.
    """
    try:
        parse_all(needs)
    except BadRequirement as error:
        raise EnvironmentFailed(
            "TrainerInvalid", f"what the trainer's build requires: {error}"
        ) from error
    return needs


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return (
            "was killed: it took more memory, disk or time than it may (engine.tool_memory, "
            "engine.tool_disk, engine.tool_timeout_s)"
        )
    return f"ended with exit code {code}"


def _trainer(folder: Path, report: Any) -> Trainer:
    """The report as facts; it comes from the tenant, so every shape is made sure of."""
    report = report if isinstance(report, dict) else {}
    findings = report.get("findings")
    findings = findings if isinstance(findings, dict) else {}
    return Trainer(
        site=_existing(folder / _SITE),
        folder=_existing(folder / _FOLDER),
        src=report.get("src") is True and is_real_folder(folder / _FOLDER / "src"),
        pythons=_pairs(report.get("pythons")),
        name=str(report.get("name", "trainer"))[:200],
        version=str(report.get("version", ""))[:100],
        requires=_strings(report.get("requires")),
        notices=_strings(report.get("notices")),
        findings=detect.Findings(
            **{key: _strings(findings.get(key)) for key in detect.Findings.__dataclass_fields__}
        ),
    )


def _existing(folder: Path) -> Path | None:
    return folder if is_real_folder(folder) else None


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = [_strings(entry) for entry in value[:10]] if isinstance(value, list) else []
    return tuple((pair[0], pair[1]) for pair in pairs if len(pair) == 2)


def _strings(value: Any) -> tuple[str, ...]:
    return (
        tuple(entry[:2000] for entry in value[:1000] if isinstance(entry, str))
        if isinstance(value, list)
        else ()
    )
