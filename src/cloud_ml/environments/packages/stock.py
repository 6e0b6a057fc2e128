"""What the machine has in stock: locks and layers, shared by all or kept by one tenant."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from cloud_ml.environments import process
from cloud_ml.environments.base import Sandbox
from cloud_ml.environments.files import digest_of
from cloud_ml.environments.interpreter import Interpreter, own
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages import resolve
from cloud_ml.environments.packages.layers import Store
from cloud_ml.environments.packages.pipconfig import PipConfig
from cloud_ml.environments.packages.requirements import Requirement, locked_versions, parse
from cloud_ml.environments.packages.uv import Uv, is_of_network
from cloud_ml.environments.packages.versions import satisfies
from cloud_ml.environments.removing import remove
from cloud_ml.environments.runtime import Runtime

_FRESH_S = 24 * 3600.0
# The last setuptools that old setup.py files work with.
_BUILD_TOOLS = (
    "setuptools>=80,<81",
    "wheel",
    "packaging",
)


@dataclass(frozen=True)
class Stock:
    """Locks and layers below ``home``.

    What was made from wheels of the machine's indexes is shared. What was made by running a
    package's build, or comes from an address that a trainer names, is its tenant's.
    """

    home: Path
    tenant: str
    uv: Path
    config: PipConfig
    sandbox: Sandbox
    log: process.Output
    timeout_s: float
    leases: Leases = field(default_factory=Leases)
    resolved: Callable[[], None] = lambda: None
    """Called when it is known what a job needs, before that is installed."""
    download_tries: int = 3
    """How often packages are downloaded where the network fails."""

    @property
    def tenant_folder(self) -> Path:
        """Everything that only this tenant's jobs see."""
        return self.home / "tenants" / self.tenant

    @cached_property
    def shared(self) -> Uv:
        """The uv for all: wheels only, nothing of their code runs."""
        return Uv(
            self.uv, self.config, self.home / "uv-cache", self.timeout_s, guard=self.sandbox.guard
        )

    @cached_property
    def private(self) -> Uv:
        """The uv of the tenant: may build, inside the sandbox."""
        return Uv(
            self.uv, self.config, self.tenant_folder / "uv-cache", self.timeout_s, self.sandbox
        )

    def build_layer(self, needs: tuple[str, ...]) -> Path:
        """A layer with what a trainer's build needs: the usual tools, and ``needs`` in place of
        them where they differ.

        Raises:
            EnvironmentFailed: It cannot be had.
        """
        question = resolve.Question((*needs, "packaging") if needs else _BUILD_TOOLS)
        # Only the tenant's own uv asks an address that a tenant has named.
        uv = self.private if any(parse(text).url for text in needs) else self.shared
        lock = self._kept_lock(question, uv, own())
        return self.store(uv).layer(lock, own())

    def layers_for(
        self, runtime: Runtime, needed: Sequence[Requirement], interpreter: Interpreter
    ) -> tuple[str, list[Path]]:
        """The lock of a job and the layers that hold it, the most specific one first.

        Raises:
            EnvironmentFailed: The requirements have no solution, or cannot be installed.
        """
        if (stock := self._serving(runtime, interpreter)) is not self:
            return stock.layers_for(replace(runtime, indexes=()), needed, interpreter)
        bare = resolve.question(
            runtime, _compatible(self.config.local_builds(interpreter.tag), needed)
        )
        base = self._base(runtime, bare, interpreter)
        if not needed:
            self.resolved()
            return base, self._install_locks(self.shared, [base], interpreter)
        try:
            lock, uv = self._job_lock(bare, base, needed, interpreter)
        except resolve.NoSolution as failure:
            raise failure.beside(runtime) from None
        resolve.check_forbidden(lock, runtime)
        self.resolved()
        if locked_versions(base).items() <= locked_versions(lock).items():
            extra = resolve.beyond(lock, base)
            own_layer = self._install_locks(uv, [extra], interpreter)
            return lock, [*own_layer, *self._install_locks(self.shared, [base], interpreter)]
        return lock, self._install_locks(uv, [lock], interpreter)

    def base_layer(self, runtime: Runtime, interpreter: Interpreter) -> tuple[str, Path] | None:
        """The lock and the folder of the bare runtime's layer, if it is there."""
        stock = self._serving(runtime, interpreter)
        bare = resolve.question(runtime, stock.config.local_builds(interpreter.tag))
        kept = stock.lock_file(bare, stock.shared, interpreter)
        if not bare.requires or not kept.is_file():
            return None
        lock = kept.read_text()
        folder = stock.store(stock.shared).place(lock, interpreter)
        return (lock, folder) if folder.is_dir() else None

    def _serving(self, runtime: Runtime, interpreter: Interpreter) -> Stock:
        """The stock that asks the runtime's own indexes, unless this machine itself offers a
        build.
        """
        offered = self.config.local_builds(interpreter.tag)
        if not runtime.indexes or any(parse(text).name in offered for text in runtime.requires):
            return self
        return replace(self, config=self.config.preferring(runtime.indexes))

    def _base(self, runtime: Runtime, bare: resolve.Question, interpreter: Interpreter) -> str:
        lock = self._kept_lock(bare, self.shared, interpreter)
        resolve.check_forbidden(lock, runtime)
        return lock

    def _kept_lock(self, question: resolve.Question, uv: Uv, interpreter: Interpreter) -> str:
        """A lock that does not depend on the job: made once on this machine, and then for good."""
        try:
            return self._lock(question, uv, interpreter, fresh_s=float("inf"), offline_first=False)
        except resolve.NoSolution as failure:
            self.log(failure.words)
            raise

    def _install_locks(self, uv: Uv, locks: list[str], interpreter: Interpreter) -> list[Path]:
        store = self.store(uv)
        return [store.layer(lock, interpreter) for lock in locks if lock.strip()]

    def _job_lock(
        self,
        bare: resolve.Question,
        base: str,
        needed: Sequence[Requirement],
        interpreter: Interpreter,
    ) -> tuple[str, Uv]:
        """The lock, and the uv that can install it.

        First on top of the runtime as it is; then with other versions of what the runtime brings;
        then the same with builds allowed. Builds are also tried where wheels alone give an older
        version of what the job requires. A package that no index has is not asked for again. The
        last try's words are the ones to read, unless they only say that the network of the tenant
        does not lead where the one of the platform did.
        """
        wider = replace(bare, requires=(*bare.requires, *(one.text for one in needed)))
        on_top = replace(wider, constraints=(*wider.constraints, *resolve.pins(base)))
        known = resolve.names(needed) <= set(locked_versions(base))
        remote = any(one.url for one in needed)
        tries = [
            (self.shared, on_top),
            (self.shared, wider),
            (self.private, on_top),
            (self.private, wider),
        ]
        tries = tries[2:] if remote else tries
        best_known: resolve.NoSolution | None = None
        for uv, question in tries:
            try:
                lock = self._lock(question, uv, interpreter, fresh_s=_FRESH_S, offline_first=known)
                if uv is self.private or known:
                    return lock, uv
                return self._newer_by_builds(lock, question, needed, interpreter) or (lock, uv)
            except resolve.NoSolution as failure:
                if best_known is None or not is_of_network(failure.words):
                    best_known = failure
                if resolve.is_unknown_package(failure.words):
                    break
        assert best_known is not None
        self.log(best_known.words)
        raise best_known

    def _newer_by_builds(
        self,
        lock: str,
        question: resolve.Question,
        needed: Sequence[Requirement],
        interpreter: Interpreter,
    ) -> tuple[str, Uv] | None:
        """A lock with newer versions of what the job requires, and the tenant's uv, which builds
        something for it; ``None`` if ``lock``, which holds wheels only, is as good.

        Where something has no wheel, uv takes, without a word, a release of years ago that did not
        need it yet. That versions differ from the newest tells it, or that requirements exclude
        each other: then builds change nothing.
        """
        unpinned = tuple(one.text for one in needed if not one.specifier.startswith("=="))
        if not unpinned:
            return None
        alone = replace(question, requires=unpinned, dependencies=False)
        try:
            newest = self._lock(
                alone, self.shared, interpreter, fresh_s=_FRESH_S, offline_first=False
            )
            if not (old := resolve.held_back(lock, newest)):
                return None
            built = self._lock(
                question, self.private, interpreter, fresh_s=_FRESH_S, offline_first=False
            )
        except resolve.NoSolution:
            return None
        return (built, self.private) if resolve.held_back(built, newest) < old else None

    def _lock(
        self,
        question: resolve.Question,
        uv: Uv,
        interpreter: Interpreter,
        *,
        fresh_s: float,
        offline_first: bool,
    ) -> str:
        """The answer to ``question``: one that is no older than ``fresh_s``, or a new one.

        Without a network an older answer is better than none.
        """
        kept = self.lock_file(question, uv, interpreter)
        age = _age_s(kept)
        if age is not None and age <= fresh_s:
            return kept.read_text()
        try:
            lock = self._ask(question, uv, interpreter, offline_first=offline_first)
        except resolve.NoSolution:
            if age is not None:
                return kept.read_text()
            raise
        kept.parent.mkdir(parents=True, exist_ok=True)
        work = kept.with_name(f".{kept.name}.{os.getpid()}")
        work.write_text(lock)
        work.replace(kept)
        return lock

    def lock_file(self, question: resolve.Question, uv: Uv, interpreter: Interpreter) -> Path:
        """Where the answer to ``question`` is kept."""
        folder = self.home if uv.sandbox is None else self.tenant_folder
        name = digest_of("lock", 1, question.__dict__, interpreter.version, self.config.fingerprint)
        return folder / "locks-made" / name

    def _ask(
        self, question: resolve.Question, uv: Uv, interpreter: Interpreter, *, offline_first: bool
    ) -> str:
        """Online first, offline where the network failed; the other way round if the answer can
        hold nothing new.
        """
        with self._scratch() as folder:
            if offline_first:
                with contextlib.suppress(resolve.NoSolution):
                    return resolve.ask(
                        question, uv=uv, interpreter=interpreter, folder=folder, offline=True
                    )
            try:
                return resolve.ask(question, uv=uv, interpreter=interpreter, folder=folder)
            except resolve.NoSolution as failure:
                if offline_first or not is_of_network(failure.words):
                    raise
                with contextlib.suppress(resolve.NoSolution):
                    return resolve.ask(
                        question, uv=uv, interpreter=interpreter, folder=folder, offline=True
                    )
                raise

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = self.tenant_folder / "scratch" / f"{os.getpid()}-{time.monotonic_ns()}"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            remove(folder)

    def store(self, uv: Uv) -> Store:
        """The layers that ``uv`` installs."""
        folder = self.home if uv.sandbox is None else self.tenant_folder
        return Store(
            folder / "layers", folder / "locks", uv, self.log, self.leases, self.download_tries
        )


def _compatible(builds: Mapping[str, str], needed: Sequence[Requirement]) -> dict[str, str]:
    """The builds that the trainer's own pins allow."""
    pins = {one.name: one.specifier for one in needed}
    return {
        name: version for name, version in builds.items() if satisfies(version, pins.get(name, ""))
    }


def _age_s(file: Path) -> float | None:
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return None
