"""The runtimes that are shipped, from their files, and the keys of such a file."""

from __future__ import annotations

from collections.abc import Iterable

from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.runtime import Runtime
from cloud_ml.environments.runtimefile import KEYS
from cloud_ml_docs.markdown import code, prose, table
from cloud_ml_docs.settings import descriptions


def keys() -> str:
    """A table of every key of a runtime's file."""
    texts = descriptions(Runtime)
    rows = [
        (code(name), prose(texts[name]), f"{allowed[0].upper()}{allowed[1:]}")
        for name, (allowed, _, _) in KEYS.items()
    ]
    return table(("Key", "Meaning", "Allowed"), rows)


def shipped() -> str:
    """A section for each shipped runtime."""
    return "\n".join(
        _section(one)
        for one in sorted(Catalog.load().runtimes, key=lambda one: (one.name, not one.default))
    )


def _section(runtime: Runtime) -> str:
    facts = {
        "Asked for as": ", ".join(f"`-F {name}`" for name in (runtime.name, *runtime.aliases))
        + _versions(runtime),
        "Found in code by": ", ".join(
            " with ".join(code(f"import {part}") for part in name.split("+"))
            for name in runtime.imports
        ),
        "Found in requirements by": _codes(runtime.distributions),
        "Installs": _codes(runtime.requires),
        "Stands in for": _codes(runtime.provides),
        "Refuses": _codes(runtime.forbids),
        "Asks first": _codes(runtime.indexes),
        "Sets": _codes(f"{name}={value}" for name, value in runtime.environment.items()),
        "Sets to the number of cores": _codes(runtime.threads),
        "Adds to the memory limit": f"{runtime.base_memory // 1024**2}M"
        if runtime.base_memory
        else "",
    }
    version = "one for each interpreter" if runtime.name == "python" else runtime.version
    summary = (
        runtime.summary.replace(f" {runtime.version};", ";")
        if runtime.name == "python"
        else runtime.summary
    )
    return f"## {runtime.name} {version}\n\n{summary}.\n\n{_table(facts)}"


def _table(facts: dict[str, str]) -> str:
    return table(("", ""), [(name, value) for name, value in facts.items() if value])


def _versions(runtime: Runtime) -> str:
    if runtime.name == "python":
        return ", `-V` a version of the list"
    return (
        ", the default" if runtime.default else ""
    ) + f", `-V` {_codes((runtime.version, *runtime.accepts))}"


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(map(code, texts))
