"""From a request to an environment that is ready: the one door of this package."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloud_ml.environments.base import (
    Base,
    EnvironmentFailed,
    EnvironmentRequest,
    Prepared,
    Sandbox,
)
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.files import digest_of, digest_of_file, read_json, write_json
from cloud_ml.environments.interpreter import Interpreter, at, own
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages import pipconfig, resolve
from cloud_ml.environments.packages.requirements import (
    BadRequirement,
    Requirement,
    locked_versions,
    parse_all,
    without_secrets,
)
from cloud_ml.environments.packages.stock import Stock
from cloud_ml.environments.packages.uv import same_place
from cloud_ml.environments.packages.venv import make_venv, variables
from cloud_ml.environments.packages.versions import release, satisfies
from cloud_ml.environments.runtime import Runtime
from cloud_ml.environments.server_paths import ServerPaths
from cloud_ml.environments.trainers import detect, modules, porting
from cloud_ml.environments.trainers.trainer import Trainer, TrainerBuilder

VENV_TARGET = "/env"
_FORMAT = 6
_COMPAT = Path(__file__).with_name("compat")
_JOB = "job"
"""The folder of ``cloud_ml.job``, for every job. An SDK that is installed goes before it."""


def prepare(
    request: EnvironmentRequest,
    *,
    home: Path,
    venv: Path,
    uv: Path,
    catalog: Catalog,
    sandbox: Sandbox,
    log: Callable[[bytes], None],
    python: Path | None = None,
    pythons: Mapping[str, str] | None = None,
    timeout_s: float = 1800.0,
    download_tries: int = 3,
    leases: Leases | None = None,
    reached: Callable[[str], None] = lambda _: None,
    fill: Callable[[Path, Interpreter, Sequence[Path]], None] = make_venv,
    working_directory: str = "",
) -> Prepared:
    """Make the environment of a gang, or find it made, and fill ``venv`` for this job.

    A request that was met before starts no process and takes a few milliseconds. Whatever takes
    long (a download, a build) is done once: other jobs that need the same wait for it.

    Args:
        request: What is wanted.
        home: The folder of all environments, owned by the platform: layers, caches, trainers of
            tenants.
        venv: A folder of this job (made if absent), which becomes its virtual environment: a
            handful of small files and links. The caller gives it to the job's user and binds it
            *writable* at ``VENV_TARGET``, since a prepare command may install into it; it is not
            among ``binds``.
        uv: The ``uv`` program.
        catalog: The runtimes that are offered.
        sandbox: Runs what executes or unpacks the tenant's code.
        log: Takes the words of the tools, as they come, without paths of this machine's folders.
        python: The interpreter of runtimes that do not ask for another; by default the one that the
            platform's own virtual environment was made from.
        pythons: Programs of other versions, by their version such as ``3.12``; uv looks for what is
            not there.
        timeout_s: Bounds every single call of a tool, in seconds.
        download_tries: How often packages are downloaded where the network fails.
        leases: Holds what the environment is made of against eviction; by default until this
            process ends.
        reached: Told each stage of the long way when it is reached: ``fetched``, ``resolved``,
            ``installed``.
        fill: Makes the virtual environment in ``venv``.
        working_directory: Where the job will see its copy of ``Prepared.folder``; by default the
            job uses that folder itself, which is among the binds then.

    Returns:
        What the engine must bind (read-only, each at the path it has on this machine; after any
        temporary file system the sandbox mounts there) and set. ``python`` is ``/env/bin/python``
        for an isolated sandbox, otherwise the one below ``venv``, and no bind is needed.
        ``environment`` holds a complete ``PATH`` beside ``VIRTUAL_ENV`` and the runtime's
        variables.

    Raises:
        EnvironmentFailed: With the reason ``TrainerNotFound``, ``TrainerInvalid`` or
            ``EnvironmentFailed``.
    """
    config = pipconfig.read()
    digest = _digest(request)
    usual = _usual_interpreter(python, home)
    key = _key(request, digest, catalog, config, usual)
    memo = Path(f"{home}/tenants/{request.tenant}/memo/{key}.json")
    paths = ServerPaths(home)
    log = paths.logged(log)
    with _readable_files(), paths.in_failures():
        leases = Leases() if leases is None else leases
        real_home = Path(os.path.realpath(home))
        made = _load_memo(memo, real_home, leases)
        if made is None:
            stock = Stock(
                real_home,
                request.tenant,
                uv,
                config,
                sandbox,
                log,
                timeout_s,
                leases,
                lambda: reached("resolved"),
                download_tries,
            )
            made = _Maker(request, catalog, stock, usual, log, pythons or {}, reached).make(digest)
            write_json(memo, asdict(made))
        place = VENV_TARGET if sandbox.isolated else str(venv)
        sites = made.sites(working_directory)
        fill(venv, made.interpreter, sites)
    return _make_prepared(made, digest, place, config, sites)


@dataclass(frozen=True)
class _Made:
    """What is remembered of an environment: everything but the job's own folder."""

    runtime: str
    python: str
    prefix: str
    version: str
    site_folders: tuple[str, ...]
    environment: dict[str, str]
    base_memory: int
    lock: str
    notices: tuple[str, ...]
    threads: tuple[str, ...]
    preload: tuple[str, ...]
    own_site: str
    folder: str
    src: bool
    takes_output_path: bool

    @property
    def interpreter(self) -> Interpreter:
        return Interpreter(Path(self.python), Path(self.prefix), self.version)

    @functools.cached_property
    def stored(self) -> tuple[Path, ...]:
        """Folders of this machine that hold what was installed."""
        return tuple(Path(folder) for folder in self.site_folders)

    def sites(self, working_directory: str) -> tuple[Path, ...]:
        """What is on the path: the working directory, if the trainer has one, and what was
        installed.
        """
        if not self.folder:
            return self.stored
        return (*sent_folders(Path(working_directory or self.folder), src=self.src), *self.stored)


@dataclass(frozen=True)
class _Maker:
    """The long way, for a request that was not met before."""

    request: EnvironmentRequest
    catalog: Catalog
    stock: Stock
    usual: Interpreter
    log: Callable[[bytes], None]
    pythons: Mapping[str, str]
    reached: Callable[[str], None]

    def make(self, digest: str) -> _Made:
        if self.request.trainer is not None:
            self.log(f"Processing {Path(self.request.trainer_name).name}\n".encode())
        trainer = self._trainer(digest)
        self.reached("fetched")
        try:
            return self._around(trainer, _requirements(trainer, self.request))
        except EnvironmentFailed:
            for notice in trainer.notices if trainer else ():  # one of them may be why
                self.log(f"cloudml: {notice}\n".encode())
            raise

    def _around(self, trainer: Trainer | None, needed: list[Requirement]) -> _Made:
        runtime, notices = self._runtime(trainer, needed)
        if trainer is not None:
            notices = (*notices, *porting.notices(trainer.findings))
            if runtime.compat:
                porting.check(trainer.findings, self.request.module)
        interpreter = self._interpreter(runtime.python)
        notices = (*notices, *_unmet_pythons(trainer, interpreter))
        needed, forbidden = resolve.without_forbidden(runtime, needed)
        needed, dropped = resolve.fit(runtime, needed)
        dropped = [*forbidden, *dropped]
        if self.request.framework_version is None:
            runtime, replaced = resolve.make_room(runtime, needed)
            dropped = [*dropped, *replaced]
        lock, layers = self.stock.layers_for(runtime, needed, interpreter)
        self.reached("installed")
        own = [trainer.site] if trainer and trainer.site else []
        if trainer is not None:
            sent = sent_folders(trainer.folder, src=trainer.src) if trainer.folder else ()
            modules.check(self.request.module, sent, own, layers)
            self.log(
                f"Installed {trainer.label} with {len(locked_versions(lock))} packages\n".encode()
            )
        sites = [*own, *layers, *(_COMPAT / name for name in (*runtime.compat, _JOB))]
        return _Made(
            runtime=runtime.label,
            python=str(interpreter.path),
            prefix=str(interpreter.prefix),
            version=interpreter.version,
            site_folders=tuple(map(str, sites)),
            environment=dict(runtime.environment),
            base_memory=runtime.base_memory,
            lock=lock,
            notices=(*(trainer.notices if trainer else ()), *notices, *dropped),
            threads=runtime.threads,
            preload=runtime.preload,
            own_site=str(own[0]) if own else "",
            folder=str(trainer.folder) if trainer and trainer.folder else "",
            src=trainer is not None and trainer.src,
            takes_output_path=trainer is not None
            and trainer.findings.takes_output_path(self.request.module),
        )

    def _interpreter(self, version: str | None) -> Interpreter:
        if version is None or version == self.usual.minor:
            return self.usual
        if program := self.pythons.get(version):
            return at(Path(program), self.stock.home)
        return self.stock.shared.find_python(version)

    def _trainer(self, digest: str) -> Trainer | None:
        file = self.request.trainer
        if file is None:
            return None
        builder = TrainerBuilder(
            folder=self.stock.tenant_folder / "trainers",
            locks=self.stock.tenant_folder / "locks",
            sandbox=self.stock.sandbox,
            layer_for=self.stock.build_layer,
            log=self.log,
            timeout_s=self.stock.timeout_s,
            leases=self.stock.leases,
        )
        return builder.stage(self.request, file, digest)

    def _runtime(
        self, trainer: Trainer | None, needed: list[Requirement]
    ) -> tuple[Runtime, tuple[str, ...]]:
        framework, version = self.request.framework, self.request.framework_version
        notices: tuple[str, ...] = ()
        if framework is None:
            findings = trainer.findings if trainer else detect.Findings()
            verdict = detect.decide(findings, needed, self.catalog, self.request.keras_backend)
            framework, version, notices = verdict.framework, verdict.version, verdict.notices
        elif framework == "keras" and version is None:
            version = detect.keras_backend_version(self.request.keras_backend)
        runtime = self.catalog.find(framework, version)
        if runtime.name == "python" and version is None and trainer is not None:
            return self._python_for(trainer, runtime), notices
        return runtime, notices

    def _python_for(self, trainer: Trainer, usual: Runtime) -> Runtime:
        """The usual runtime of plain Python, or the newest one of a version that the trainer
        asks for.
        """
        if not trainer.pythons:
            return usual
        known = [
            one for one in self.catalog.runtimes if one.name == usual.name and release(one.version)
        ]
        fitting = [
            one
            for one in known
            if all(_fits(one.version, specifier) for _, specifier in trainer.pythons)
        ]
        if usual in fitting or not fitting:
            return usual
        return max(fitting, key=lambda one: release(one.version))


def _fits(minor: str, specifier: str) -> bool:
    """Whether some release of a minor version meets the specifier: which one the machine has is
    not known here.
    """
    return satisfies(f"{minor}.999", specifier)


def _unmet_pythons(trainer: Trainer | None, interpreter: Interpreter) -> tuple[str, ...]:
    pythons = trainer.pythons if trainer else ()
    unmet = [
        (file, specifier) for file, specifier in pythons if not _fits(interpreter.minor, specifier)
    ]
    return tuple(
        f"{file} asks for Python {specifier[:100]}, and the job gets {interpreter.version}; "
        "`cloudml framework list` shows what there is"
        for file, specifier in unmet
    )


def sent_folders(folder: Path, *, src: bool) -> tuple[Path, ...]:
    """The folders of a working directory that hold modules."""
    return (folder, folder / "src") if src else (folder,)


def _requirements(trainer: Trainer | None, request: EnvironmentRequest) -> list[Requirement]:
    try:
        return list(parse_all((*(trainer.requires if trainer else ()), *request.requires)))
    except BadRequirement as error:
        raise EnvironmentFailed("TrainerInvalid", f"the trainer's requirements: {error}") from error


def _digest(request: EnvironmentRequest) -> str:
    if request.trainer is None:
        return ""
    try:
        return digest_of_file(request.trainer)
    except OSError as error:
        raise EnvironmentFailed(
            "TrainerNotFound", f"{request.trainer_name} cannot be read: {error.strerror}"
        ) from error


def _usual_interpreter(python: Path | None, home: Path) -> Interpreter:
    try:
        return own() if python is None else at(python, home)
    except (OSError, ValueError, TimeoutError) as error:
        raise EnvironmentFailed(
            "EnvironmentFailed", f"the interpreter {python} cannot be used: {error}"
        ) from error


def _key(
    request: EnvironmentRequest,
    digest: str,
    catalog: Catalog,
    config: pipconfig.PipConfig,
    python: Interpreter,
) -> str:
    code = (request.trainer_name, request.module, request.framework, request.framework_version)
    given = (request.requires, request.keras_backend)
    return digest_of(
        _FORMAT,
        digest,
        code,
        given,
        catalog.digest,
        config.fingerprint,
        python.version,
        str(python.path),
    )


def _load_memo(memo: Path, home: Path, leases: Leases) -> _Made | None:
    """What was made before, if all of it still stands; it is held then."""
    document: Any = read_json(memo)
    if not isinstance(document, dict) or set(document) != set(_Made.__dataclass_fields__):
        return None
    made = _Made(**document)
    stored = [*made.stored, *([Path(made.folder)] if made.folder else [])]
    # Take the lease before looking: a leased folder cannot be evicted.
    held = leases.take_all(
        {folder.parent for folder in stored if f"{folder}".startswith(f"{home}/")}
    )
    needed = (made.python, *map(str, stored))
    there = held and all(os.path.exists(path) for path in needed)  # noqa: PTH110
    return made if there else None


def _make_prepared(
    made: _Made, digest: str, place: str, config: pipconfig.PipConfig, sites: Sequence[Path]
) -> Prepared:
    interpreter = made.interpreter
    used = [Path(made.folder)] if made.folder and sites[0] == Path(made.folder) else []
    prefix = [interpreter.prefix] if interpreter.mounted else []
    folders: list[Path | str] = [*used, *made.stored, *config.paths, *prefix]
    environment = {**config.job_environment(), **made.environment}
    shared = [site for site in made.stored if str(site) != made.own_site]
    binds = tuple(same_place(*folders))
    return Prepared(
        python=f"{place}/bin/python",
        binds=binds,
        environment={**environment, **variables(place, made.stored)},
        runtime=made.runtime,
        base_memory=made.base_memory,
        lock=without_secrets(made.lock),
        trainer_digest=digest,
        notices=tuple(made.notices),
        threads=tuple(made.threads),
        preload=tuple(made.preload),
        own_sites=tuple(str(site) for site in sites if site not in shared),
        folder=made.folder,
        takes_output_path=made.takes_output_path,
        base=Base(
            python=made.python,
            prefix=made.prefix,
            version=made.version,
            sites=tuple(map(str, shared)),
            binds=tuple(bind for bind in binds if bind.source != made.own_site),
            environment={**environment, **variables(place, shared)},
        ),
    )


@contextlib.contextmanager
def _readable_files() -> Iterator[None]:
    """What is made here is read by users of jobs, whatever the mask of the server."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)
