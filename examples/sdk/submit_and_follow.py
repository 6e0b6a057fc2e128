"""Submit a job, print its log while it is written, and read what it left.

Endpoint and keys come from the environment or from `cloudml config init`, here as in all the
examples beside.
"""

import json
import sys
import uuid
from pathlib import Path

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError
from cloud_ml.models.train_job import TrainJob

HERE = str(Path(__file__).parent)


def main() -> int:
    name = f"slope-{uuid.uuid4().hex[:8]}"
    with CloudMlClient() as client:
        bucket = client.whoami().default_bucket
        out = f"fds://{bucket}/{name}"
        job = client.submit_train_job(
            TrainJob(name, "trainer.task", HERE, job_args=[f"--out={out}"])
        )
        for chunk in job.logs(follow=True):
            sys.stdout.buffer.write(chunk)
        if not job.wait().succeeded:
            print(f"{name} {job.phase}: {job.job.message}", file=sys.stderr)
            return 1
        with client.storage.open(f"{out}/result.json") as content:
            print("slope:", round(json.loads(content.read())["slope"], 2))
        for event in job.events():
            print(event.at.astimezone().strftime("%H:%M:%S"), event.reason, event.message)
        job.delete()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CloudMlError as error:
        sys.exit(f"{error} {error.hint or ''}")
