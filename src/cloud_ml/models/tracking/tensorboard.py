"""TensorBoards as their users see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from cloud_ml.models.fields import names_near
from cloud_ml.models.resource import ResourceType, ResourceView

_ALIASES = {
    "log_dir": "logdir", "logs": "logdir", "folder": "logdir", "job": "jobs", "runs": "jobs",
    "memory": "memory_limit", "cpu": "cpu_limit",
}  # fmt: skip
"""Words of others, and ours."""


@names_near(_ALIASES)
@dataclass(frozen=True, kw_only=True)
class NewTensorBoard:
    """A TensorBoard on a folder, on jobs, or on the trials of a study. It has one of these.

    Attributes:
        name: Its name.
        logdir: A folder with event files: ``fds://BUCKET/PATH``.
        jobs: Train jobs. Their runs are shown under their names. A job's folder is its
            ``tensorboard_logdir``, else its ``output_path``.
        study: A study. Its trials are shown under the names of their jobs, also later ones.
        cpu_limit: Cores that it may use; no limit by default.
        memory_limit: Memory that it may use; 2G by default.
    """

    name: str
    logdir: str = ""
    jobs: list[str] = field(default_factory=list)
    study: str = ""
    cpu_limit: str | None = None
    memory_limit: str | None = None


@dataclass(frozen=True, kw_only=True)
class TensorBoard(ResourceView):
    """A TensorBoard. ``address`` is its own origin, which only a ticket opens.

    ``Paused`` is one that nobody looks at: the next request starts it again.
    """

    logdir: str = ""
    jobs: list[str] = field(default_factory=list)
    study: str = ""
    address: str = ""
    reason: str = ""
    message: str = ""
    cpu_limit: str = ""
    memory_limit: str = ""


@dataclass(frozen=True, kw_only=True)
class OpenedTensorBoard:
    """A way into a TensorBoard for one browser.

    Attributes:
        url: Opens it once, until ``expires_at``. The browser then has a cookie for this TensorBoard.
        expires_at: When the URL ceases to work.
        session_until: When the cookie ceases to work.
        local: Whether the name in ``url`` means the machine of the browser: then the browser must
            be on the server's machine, or reach its port through a tunnel.
        port: The port of the server's machine, for a tunnel.
    """

    url: str
    expires_at: datetime
    session_until: datetime
    local: bool = False
    port: int = 0


def source_of(board: TensorBoard) -> str:
    """What it shows, in words for a table."""
    if board.study:
        return f"study {board.study}"
    return board.logdir or ", ".join(board.jobs)


TENSORBOARDS: ResourceType[NewTensorBoard, TensorBoard] = ResourceType(
    name="tensorboard",
    plural="tensorboards",
    help="TensorBoards: create, open, list, delete.",
    new=NewTensorBoard,
    view=TensorBoard,
    columns={"SHOWS": source_of},
    failed=frozenset({"Failed", "Stopped"}),
)
