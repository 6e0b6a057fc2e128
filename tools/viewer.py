"""Fetch the viewer of the API's documentation from npm, and keep what the server sends of it.

::

    python tools/viewer.py            # fetch, check and write
    python tools/viewer.py --check    # exit 1 if what is kept is not what was pinned

The package is pinned by version and by the integrity that npm publishes. Only three of its files
are kept, compressed, and their digests: the page names them, so that a browser refuses any other
script.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "swagger-ui-dist", "5.35.0"
INTEGRITY = "sha512-U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ=="
FOLDER = Path(__file__).resolve().parent.parent / "src" / "cloud_ml" / "api" / "viewer"
SCRIPTS = ("swagger-ui-bundle.js", "swagger-ui.css")
NOTICES = ("LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt")
INDEX = FOLDER / "integrity.json"


def digest(content: bytes, algorithm: str = "sha384") -> str:
    """The digest of a file as browsers and npm write it."""
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}"


def fetch() -> bytes:
    """The package as npm sends it.

    Raises:
        SystemExit: It is not the one that is pinned.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", folder],  # noqa: S607
            check=True,
        )
        content = next(Path(folder).iterdir()).read_bytes()
    if (found := digest(content, "sha512")) != INTEGRITY:
        sys.exit(f"{PACKAGE} {VERSION} has the integrity {found}, but {INTEGRITY} is pinned")
    return content


def write(package: bytes) -> None:
    """Keep what the server sends, and under which terms."""
    FOLDER.mkdir(exist_ok=True)
    kept = {}
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for name in (*SCRIPTS, *NOTICES):
            member = archive.extractfile(f"package/{name}")
            assert member is not None
            content = member.read()
            if name in SCRIPTS:
                kept[name] = digest(content)
                (FOLDER / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
            else:
                (FOLDER / f"{name.removesuffix('.txt')}.txt").write_bytes(content)
    index = {"package": PACKAGE, "version": VERSION, "integrity": INTEGRITY, "files": kept}
    INDEX.write_text(json.dumps(index, indent=2) + "\n")


def faults() -> list[str]:
    """What is kept and is not what was pinned."""
    index = json.loads(INDEX.read_text())
    pinned = (index["package"], index["version"], index["integrity"]) == (
        PACKAGE,
        VERSION,
        INTEGRITY,
    )
    found = [] if pinned else [f"{INDEX.name} is of {index['package']} {index['version']}"]
    kept = {name: digest(gzip.decompress((FOLDER / f"{name}.gz").read_bytes())) for name in SCRIPTS}
    wrong = [name for name in SCRIPTS if kept[name] != index["files"].get(name)]
    return [*found, *(f"{name} has another digest than {INDEX.name} says" for name in wrong)]


def main() -> None:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if something differs"
    )
    if not parser.parse_args().check:
        write(fetch())
    if found := faults():
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
