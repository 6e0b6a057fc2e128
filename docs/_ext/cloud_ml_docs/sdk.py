"""The classes of the SDK and their methods, from the signatures and docstrings of the face that
blocks.
"""

from __future__ import annotations

import inspect
import re
from functools import cached_property

from cloud_ml.client import CloudMlClient
from cloud_ml.sdk.admin.calls import Admin
from cloud_ml.sdk.admin.quota import Quota
from cloud_ml.sdk.jobs.handles import JobHandle
from cloud_ml.sdk.logged_run import LoggedRun
from cloud_ml.sdk.models.handles import ServiceHandle
from cloud_ml.sdk.storage.client import Storage
from cloud_ml.sdk.study_handle import StudyHandle
from cloud_ml_docs.markdown import code, first_paragraph, table

CLASSES: tuple[tuple[type, str], ...] = (
    (CloudMlClient, "`cloud_ml.client.CloudMlClient`, `cloud_ml.aio.AsyncCloudMlClient`"),
    (JobHandle, "What `submit_train_job` and `get_train_job` return."),
    (ServiceHandle, "What `create_model_service` and `get_model_service` return."),
    (StudyHandle, "What `create_study` and `get_study` return."),
    (LoggedRun, "What `run` returns: a block of code logs to it."),
    (Storage, "`client.storage`"),
    (Admin, "`client.admin`"),
    (Quota, "`client.quota`"),
)


def classes() -> str:
    """A heading and a table for each class."""
    return "\n".join(f"## {kind.__name__}\n\n{where}\n\n{methods(kind)}" for kind, where in CLASSES)


def methods(kind: type) -> str:
    """A table of what a class offers, in the order of the source, the inherited at last."""
    rows = []
    for owner in kind.__mro__[:-1]:
        for name, thing in vars(owner).items():
            if name.startswith("_") or any(
                name == row[0].strip("`").partition("(")[0] for row in rows
            ):
                continue
            if isinstance(thing, property):
                rows.append((code(name), first_paragraph(thing.__doc__)))
            elif isinstance(thing, cached_property):
                rows.append((code(name), first_paragraph(thing.func.__doc__)))
            elif inspect.isfunction(thing):
                rows.append((code(f"{name}{_parameters(thing)}"), first_paragraph(thing.__doc__)))
    return table(("Method", "What it does"), rows)


def _parameters(function: object) -> str:
    """The names of the parameters; those with a default in brackets, as in the help of commands."""
    parts, keywords = [], False
    for parameter in list(inspect.signature(function).parameters.values())[1:]:  # type: ignore[arg-type]
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            parts.append("*")
        default = parameter.default
        shown = parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"
        parts.append(shown)
    return re.sub(r"\s+", " ", f"({', '.join(parts)})")
