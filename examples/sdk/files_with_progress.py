"""Send a file and fetch it again, and tell how far it is:
`files_with_progress.py FILE fds://bucket/key`.

Interrupt it and start it again: what has arrived of a large file is not sent twice.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError


def bar(what: str) -> Callable[[int, int | None], None]:
    def tell(done: int, total: int | None) -> None:
        print(
            f"{what}: {done:,} of {total:,} bytes" if total else f"{what}: {done:,} bytes",
            file=sys.stderr,
        )

    return tell


def main(file: Path, uri: str) -> int:
    with CloudMlClient() as client, tempfile.TemporaryDirectory() as folder:
        sent = client.storage.upload(file, uri, progress=bar("sent"))
        print(f"{uri} has {sent.size} bytes and the digest {client.storage.digest(uri)}")
        back = Path(folder) / "back"
        client.storage.download(uri, back, progress=bar("fetched"))
        print("the same" if back.read_bytes() == file.read_bytes() else "not the same")
        print("for an hour, for whoever has it:", client.storage.presign(uri, expires_s=3600))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
    except CloudMlError as error:
        sys.exit(f"{error} {error.hint or ''}")
