"""What the commands of one call share: the global options and the client made from them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient


class Session:
    """The global options.

    Args:
        context: Name of a context of the user's settings; ``None`` means the current one.
        endpoint: The server's address, before every other source.
    """

    def __init__(self, context: str | None = None, endpoint: str | None = None) -> None:
        self.context = context
        self.endpoint = endpoint
        self.org: str | None = None
        """Another organisation, whose jobs an administrator names."""

    @cached_property
    def client(self) -> CloudMlClient:
        """The client, made when a command first needs it."""
        from cloud_ml.client import CloudMlClient

        client = CloudMlClient(endpoint=self.endpoint, context=self.context)
        return client if self.org is None else client.for_org(self.org)

    def close(self) -> None:
        """Close the client's connections, if there was one."""
        if "client" in self.__dict__:
            self.client.close()


pass_session = click.make_pass_decorator(Session, ensure=True)
