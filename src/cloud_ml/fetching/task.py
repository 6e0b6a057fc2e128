"""What is to be fetched, within which bounds, and why it cannot be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """What to fetch, and the bounds. ``user`` is the user and group id to become, as root; 0 stays.

    With a ``folder`` the URL is a Git repository, and that is a private folder to work in. ``ref``
    names the commit, ``subdirectory`` a folder of it; ``name`` is the top folder of the archive.
    """

    url: str
    allow: tuple[str, ...] = ()
    size_limit: int = 512 * 2**20
    timeout_s: float = 300.0
    redirects: int = 5
    user: int = 0
    folder: str = ""
    ref: str = ""
    subdirectory: str = ""
    name: str = "trainer"


class FetchFailed(Exception):
    """Why it cannot be fetched: a sentence for the owner of the job, without what only the operator
    may know.

    ``passing`` tells that another try may succeed: the network failed, or the server was busy.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


def redact_url(url: str) -> str:
    """A URL without what may be a secret in it."""
    return "".join(char if char.isprintable() else "?" for char in url.partition("?")[0])[:200]
