"""The versions of a running server: what its settings say, watched, loaded in threads, given
back.
"""

import asyncio
import ctypes
import gc
import logging
from collections.abc import Mapping

from cloud_ml.serving.batching import BatchContext
from cloud_ml.serving.errors import BadRequest, ServingError
from cloud_ml.serving.independence.decide import decide_all
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.loading import load, platform_of
from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.settings import Settings
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.folders import Folder
from cloud_ml.serving.versions.model_config import ModelConfig, parse_config
from cloud_ml.serving.versions.task_runner import LoopTaskRunner
from cloud_ml.serving.versions.version_manager import ModelOperations, VersionManager
from cloud_ml.serving.versions.warmup import warm_up

log = logging.getLogger(__name__)


class Life:
    """Starts the version manager of a server, and follows its configuration file."""

    def __init__(self, settings: Settings, table: ModelTable, context: BatchContext) -> None:
        self._settings = settings
        self._context = context
        self._world = LoopTaskRunner(context.loop)
        self._text = ""
        self.manager = VersionManager(
            table, self._world, settings.rules, ModelOperations(self._load, self._open, give_back)
        )

    async def start(self) -> None:
        """Load what there is; return when each model answers or could not be loaded.

        Raises:
            BadRequest: where the configuration file cannot be read.
        """
        configs: Mapping[str, ModelConfig] = self._settings.models
        if self._settings.config_file is not None:
            self._text = self._read()
            configs = parse_config(self._text)
        begun = asyncio.Event()
        self.manager.start(configs, begun.set)
        await begun.wait()
        if self._settings.config_file is not None and self._settings.config_poll_s > 0:
            self._world.later(self._settings.config_poll_s, self._poll)

    def _read(self) -> str:
        assert self._settings.config_file is not None
        try:
            return self._settings.config_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"{self._settings.config_file} cannot be read: {error}") from error

    def _poll(self) -> None:
        """Serve what the file says now, if it says something else than before."""
        self._world.look(self._read, self._came)
        self._world.later(self._settings.config_poll_s, self._poll)

    def _came(self, text: str | Exception) -> None:
        if isinstance(text, Exception):
            log.error("%s", text)
        elif text != self._text:
            self._text = text
            try:
                self.manager.reload(parse_config(text), _log_result)
            except ServingError as error:
                _log_result(error)

    def _load(self, folder: Folder) -> Model:
        model = load(folder.path, self._settings.loading)
        requests: list[tuple[str, list[Array]]] = []
        warm = self._settings.warm_up
        if warm:
            runs = warm_up(model, folder.path, requests)
            log.info("%s is warm after %s runs", folder.path, runs)
        decide_all(str(folder.path), model, self._settings.batching, requests, try_out=warm)
        return model

    def _open(self, name: str, number: int, model: Model, folder: Folder) -> LoadedVersion:
        return LoadedVersion(name, number, model, self._context, platform_of(folder.path))


def _log_result(error: ServingError | None) -> None:
    if error is None:
        log.info("the configuration file is in force")
    else:
        log.error("the configuration file is not in force as a whole: %s", error.message)


def give_back(model: Model) -> None:
    """Close a model, and hand its memory to the system: allocators keep what they were given."""
    model.close()
    gc.collect()  # frameworks hold their graphs in cycles
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # not glibc
        return
