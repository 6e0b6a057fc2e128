"""Applications of tenants that are opened in a browser, such as TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.settings.sizes import GIB

LOCAL = "localhost"


@dataclass(frozen=True)
class ApplicationSettings:
    """Where applications are opened. Each has an origin of its own, which is not the API's."""

    domain: str = LOCAL
    """Each application has a name below this one, such as ``tb-4f….localhost``. Browsers take
    names below ``localhost`` for their own machine. Any other domain needs a wildcard in DNS and
    in the certificate, and may not be related to ``applications.api_name``.
    """
    api_name: str = ""
    """The name under which browsers reach the API. It is needed for a domain other than
    ``localhost``: what applications do with cookies must not concern the API.
    """
    host: str = ""
    """Address to listen on. Empty means loopback for ``localhost``, else that of the gateway."""
    port: int = 8472
    """Port of all applications."""
    public_port: int = 0
    """The port that browsers use, where a proxy stands in front; 0 for ``applications.port``."""
    ticket_s: float = 60.0
    """How long a URL of ``cloudml tensorboard open`` works. It works once."""
    session_s: float = 43_200.0
    """How long a browser stays signed in at one application."""
    start_s: float = 60.0
    """How long a request waits for an application that is paused or starting."""
    idle_s: float = 1800.0
    """An application without requests for so long is paused. The next request starts it."""
    mirror: bool = False
    """A TensorBoard copies the event files that it shows, while somebody looks, and sees no bucket.
    Without it, the folders of buckets are mounted; a store that has no folders needs it.
    """
    mirror_bytes: int = 10 * GIB
    """Bytes of the copies of one TensorBoard, at most four fifths of the disk limit of jobs. What is
    more is not shown, and its log says so.
    """

    @property
    def local(self) -> bool:
        """Whether names mean the machine of the browser."""
        return self.domain == LOCAL
