"""Writes what a server is made of, as a bill of materials in CycloneDX 1.6, and checks it against
the schema.

::

    python tools/sbom.py dist/sbom.json

Our own component and all that it needs with the extras ``server`` and ``postgres``, as installed
here, with licences, the hashes of the lock and who needs whom. Written twice over the same
installation, it is the same, byte for byte:
its serial number is made of its content and its time is the version's, if ``SOURCE_DATE_EPOCH``
tells one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from email.message import Message
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, cast

from packaging.markers import default_environment
from packaging.requirements import Requirement

LOCK = Path(__file__).resolve().parents[1] / "locks" / "all.txt"
EXTRAS = ("server", "postgres")
_LOCKED = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+)[^\n]*\n((?:    --hash=\S+[^\n]*\n)+)", re.MULTILINE
)

Document = dict[str, Any]


def document() -> Document:
    """The bill, as JSON values."""
    hashes = {
        (_normal(name), version): re.findall("sha256:([0-9a-f]{64})", block)
        for name, version, block in _LOCKED.findall(LOCK.read_text("utf-8"))
    }
    needs = _closure("cloud-ml", EXTRAS)
    components = [_component(distribution(name), hashes) for name in sorted(needs)]
    own = next(one for one in components if one["name"] == "cloud-ml")
    refs = {one["name"]: one["bom-ref"] for one in components}
    made: Document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"type": "application"}},
        "components": [one for one in components if one is not own],
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[one] for one in sorted(needs[name])]}
            for name in refs
        ],
    }
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        made["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).isoformat()
    return {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made))}", **made}


def _closure(name: str, extras: tuple[str, ...]) -> dict[str, set[str]]:
    """Every package that is needed → those that it needs itself."""
    found: dict[str, set[str]] = {}
    extras_of: dict[str, set[str]] = {}
    todo = [(name, {"", *extras})]
    while todo:
        one, added = todo.pop()
        if one in found and added <= extras_of[one]:
            continue
        extras_of.setdefault(one, set()).update(added)
        found.setdefault(one, set())
        for text in distribution(one).requires or ():
            needed = Requirement(text)
            environments = [{**default_environment(), "extra": extra} for extra in extras_of[one]]
            if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                found[one].add(_normal(needed.name))
                todo.append((_normal(needed.name), {"", *needed.extras}))
    return found


def _component(one: Distribution, hashes: dict[tuple[str, str], list[str]]) -> Document:
    name, facts = _normal(one.metadata["Name"]), cast("Message", one.metadata)
    purl = f"pkg:pypi/{name}@{one.version}"
    made: Document = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": one.version,
        "purl": purl,
    }
    if known := hashes.get(
        (name, one.version)
    ):  # of all its files: which of them was installed, nobody notes
        made["properties"] = [{"name": "cloudml:locked-sha256", "value": value} for value in known]
    if licence := facts.get("License-Expression"):
        made["licenses"] = [{"expression": licence}]
    elif named := [
        text.rpartition(" :: ")[2]
        for text in facts.get_all("Classifier", ())
        if "License ::" in text
    ]:
        made["licenses"] = [{"license": {"name": text}} for text in named]
    elif licence := (facts.get("License") or "").strip():
        made["licenses"] = [{"license": {"name": licence.splitlines()[0]}}]
    return made | ({"description": facts["Summary"]} if facts["Summary"] else {})


def faults(text: str) -> str | None:
    """What is wrong with it by the schema; ``None`` if nothing."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return None if found is None else str(found)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    content = json.dumps(document(), indent=2, sort_keys=True) + "\n"
    if problem := faults(content):
        sys.exit(f"the bill does not follow its schema: {problem}")
    Path(sys.argv[1]).write_text(content, "utf-8")
    print(f"{sys.argv[1]}: {content.count('bom-ref')} components")
