"""A kind of resource as its users see it: names, documents, and the columns of its list.

One description serves the API, the SDK and the command line. Its server's half is
``usecases.resources.Resource``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar


class NewResource(Protocol):
    """What is sent to create a resource: a dataclass with a name, and fields of its own."""

    @property
    def name(self) -> str:
        """The name, unique in the organisation."""


@dataclass(frozen=True, kw_only=True)
class ResourceView:
    """What every resource shows. A kind adds fields of its own in a subclass.

    ``owner`` is the user who created it. ``revision`` grows with every change.
    """

    uid: str
    name: str
    org: str
    owner: str
    phase: str
    revision: int
    created_at: datetime
    updated_at: datetime
    deleting: bool = False


NewT = TypeVar("NewT", bound=NewResource)
ViewT = TypeVar("ViewT", bound=ResourceView)


@dataclass(frozen=True, kw_only=True)
class ResourceType(Generic[NewT, ViewT]):
    """Describes a kind of resource to its clients.

    Attributes:
        name: One of them: ``note``.
        plural: Many of them: ``notes``. It is the path ``/api/v1/notes``, the group
            ``cloudml notes`` and the scope ``notes:read`` of a token.
        help: The line in the help of the command line.
        new: What is sent to create one.
        view: What is shown.
        columns: Titles of columns of the list, and what they show of a view. Name, state, owner and
            time of creation are always there.
        actions: What one may be asked for beside these, such as ``stop``, with a line of help.
        bodies: What is sent with an action, of those that take anything.
        at_end: Phases of an end in which an action can be asked for, of those that have any.
        succeeded: Phases in which one has ended well, for ``wait``.
        failed: Phases in which one has ended otherwise.
        deletes: The line of help of ``delete``, where more goes with one. It asks before.
        goes_along: What that is, as the question says it.
    """

    name: str
    plural: str
    help: str
    new: type[NewT]
    view: type[ViewT]
    columns: Mapping[str, Callable[[ViewT], str]] = field(default_factory=dict)
    actions: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, type[Any]] = field(default_factory=dict)
    at_end: Mapping[str, frozenset[str]] = field(default_factory=dict)
    succeeded: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    deletes: str = ""
    goes_along: str = ""

    @property
    def path(self) -> str:
        """Where the API has them."""
        return f"/api/v1/{self.plural}"

    @functools.cached_property
    def page(self) -> type[Any]:
        """The document of a list: ``items``, the cursor ``next`` of the next page, and where to
        watch from.
        """
        namespace = {"__doc__": f"{self.plural.capitalize()}, newest first."}
        fields: list[Any] = [
            ("items", list.__class_getitem__(self.view)),
            ("next", int | None, None),
            ("revision", int, 0),
        ]
        return make_dataclass(
            f"{self.view.__name__}Page", fields, frozen=True, kw_only=True, namespace=namespace
        )


@dataclass(frozen=True, kw_only=True)
class ResourceChange:
    """A resource changed. ``resource`` is its view at ``revision`` or later; ``None`` once it is
    gone.
    """

    revision: int
    uid: str
    name: str
    org: str
    resource: Any = None
