"""Print every change of every job of the organisation as it happens: `watch_everything.py [ENDS]`.

One connection, and nothing is polled. With ENDS it stops when so many jobs have ended, else on
Ctrl-C.
"""

import contextlib
import sys

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError


def main(ends: int | None) -> int:
    ended: set[str] = set()
    with CloudMlClient() as client, contextlib.closing(client.watch_train_jobs()) as changes:
        for change in changes:
            if change.job is None:
                print(f"{change.name} is gone", flush=True)
                continue
            print(
                f"{change.name} is {change.job.phase}: {change.job.message or change.job.reason}",
                flush=True,
            )
            if change.job.finished:
                ended.add(change.uid)
                if len(ended) == ends:
                    break
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
    except CloudMlError as error:
        sys.exit(f"{error} {error.hint or ''}")
    except KeyboardInterrupt:
        sys.exit(130)
