"""Whether calls of a signature may run together: what was decided, by whom, and why."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cloud_ml.serving.independence.tensor_info import NotIndependent

log = logging.getLogger(__name__)


class Evidence(NamedTuple):
    """What a runtime knows of the rows of a signature. ``source`` is ``graph``, ``kind`` or
    ``model``.
    """

    independent: bool
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class BatchingDecision:
    """Whether calls of several clients run together.

    ``decided_by`` is ``operator``, ``model``, ``graph``, ``kind``, ``probe``, ``signature`` or
    ``default``; a ``warning`` says what speaks against it.
    """

    enabled: bool
    decided_by: str
    reason: str
    warning: str = ""

    @property
    def details(self) -> dict[str, str | bool]:
        """What metadata tell of it."""
        document: dict[str, str | bool] = {
            "enabled": self.enabled,
            "decided_by": self.decided_by,
            "reason": self.reason,
        }
        return document | ({"warning": self.warning} if self.warning else {})


def proven(source: str, found: str, check: Callable[[], None]) -> Evidence:
    """The evidence of a proof. ``check`` raises ``NotIndependent`` without one; ``found`` says
    what it showed.
    """
    try:
        check()
    except NotIndependent as reason:
        return Evidence(False, source, str(reason))
    except Exception as error:  # a file that its framework reads is no reason not to serve it
        log.warning("rows could not be proven independent", exc_info=True)
        return Evidence(
            False, source, f"it cannot be looked at: {type(error).__name__}: {error}"[:300]
        )
    return Evidence(True, source, found)
