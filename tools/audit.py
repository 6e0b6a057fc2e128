"""Known vulnerabilities of the packages in ``locks/``, as the Open Source Vulnerabilities database
has them.

::

    python tools/audit.py                        # asks api.osv.dev, one request for all packages
    python tools/audit.py --database all.zip     # a copy of the database (its PyPI/all.zip)

Exit code 0: nothing is known, or nobody could be asked, which is said; ``--strict`` makes the
latter 2. 1: something is known; each finding has a line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

LOCKS = Path(__file__).resolve().parents[1] / "locks"
ADDRESS = "https://api.osv.dev/v1/querybatch"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)

Pin = tuple[str, str]


def pins(folder: Path = LOCKS) -> dict[Pin, list[str]]:
    """Name and version of all that is locked, with the locks it stands in."""
    found: dict[Pin, list[str]] = {}
    for lock in sorted(folder.glob("*.txt")):
        for name, version in _PIN.findall(lock.read_text("utf-8")):
            found.setdefault((_normal(name), version), []).append(lock.stem)
    return found


def queried(releases: Iterable[Pin], timeout_s: float) -> Iterator[tuple[Pin, str]]:
    """Findings of the database on the network. Raises ``OSError`` or ``ValueError`` if it cannot
    be asked.
    """
    releases = list(releases)
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        for name, version in releases
    ]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(ADDRESS, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        results = json.load(answer)["results"]
    for pin, result in zip(releases, results, strict=True):
        for one in result.get("vulns", ()):
            yield pin, one["id"]


def looked_up(releases: Iterable[Pin], database: Path) -> Iterator[tuple[Pin, str]]:
    """Findings of a copy of the database: a zip archive of one JSON document for each
    vulnerability.
    """
    versions: dict[str, list[str]] = {}
    for name, version in releases:
        versions.setdefault(name, []).append(version)
    with zipfile.ZipFile(database) as bundle:
        for entry in bundle.namelist():
            document = json.loads(bundle.read(entry)) if entry.endswith(".json") else {}
            if "withdrawn" in document:
                continue
            for affected in document.get("affected", ()):
                package = affected.get("package", {})
                if (
                    package.get("ecosystem") == "PyPI"
                    and (name := _normal(package["name"])) in versions
                ):
                    for version in versions[name]:
                        if _is_affected(version, affected):
                            yield (name, version), document["id"]


def _is_affected(version: str, affected: dict[str, Any]) -> bool:
    if version in affected.get("versions", ()):
        return True
    ours = Version(version)
    for span in affected.get("ranges", ()):
        inside = False
        for event in span.get("events", ()) if span.get("type") == "ECOSYSTEM" else ():
            ((kind, text),) = event.items()
            try:
                theirs = Version(text)
            except InvalidVersion:
                continue
            if kind == "introduced" and ours >= theirs:
                inside = True
            elif (kind == "fixed" and ours >= theirs) or (
                kind == "last_affected" and ours > theirs
            ):
                inside = False
        if inside:
            return True
    return False


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Print what is known."""
    parser = argparse.ArgumentParser(description="Known vulnerabilities of what is locked.")
    parser.add_argument(
        "--database", type=Path, help="a copy of the database instead of the network"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 2 if the database cannot be asked"
    )
    parser.add_argument("--timeout", type=float, default=20, help="seconds")
    options = parser.parse_args()
    locked = pins()
    try:
        found = set(
            looked_up(locked, options.database)
            if options.database
            else queried(locked, options.timeout)
        )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        where = options.database or ADDRESS
        print(
            f"NOT AUDITED: {where} cannot be asked ({error}); nothing is known about "
            f"{len(locked)} packages."
        )
        return 2 if options.strict else 0
    for (name, version), vulnerability in sorted(found):
        where = ", ".join(locked[name, version])
        print(f"{name} {version}: {vulnerability} (https://osv.dev/{vulnerability}); in {where}")
    print(f"{len(locked)} packages were looked up, {len(found)} vulnerabilities are known.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
