"""Reference pages that are read from the code when the documentation is built.

A page says ``<!-- generated: settings -->`` where the text of ``PARTS["settings"]()`` is to stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cloud_ml_docs import (
    cli,
    deaths,
    errors,
    examples,
    jobs,
    lifecycle,
    rest,
    runtimes,
    sdk,
    settings,
    studies,
)

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PARTS: Mapping[str, Callable[[], str]] = {
    "cli": cli.commands,
    "deaths": deaths.rows,
    "distributed-examples": examples.distributed,
    "errors": errors.codes,
    "job-fields": jobs.fields,
    "moves": lifecycle.moves,
    "original-wire": rest.original,
    "rest": rest.modern,
    "runtime-keys": runtimes.keys,
    "runtimes": runtimes.shipped,
    "sdk": sdk.classes,
    "settings": settings.themes,
    "study-fields": studies.fields,
    "trial-fields": studies.trial_fields,
}

_MARK = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def fill(page: str) -> str:
    """The page with every mark replaced by its part.

    Raises:
        KeyError: A mark names a part that does not exist.
    """
    return _MARK.sub(lambda mark: PARTS[mark[1]](), page)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""

    def on_read(_app: Sphinx, _name: str, source: list[str]) -> None:
        source[0] = fill(source[0])

    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
