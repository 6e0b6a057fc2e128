"""The same in a program that awaits: log and changes of a job at once, each as it comes."""

import asyncio
import sys
import uuid
from pathlib import Path

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.errors import CloudMlError
from cloud_ml.models.train_job import TrainJob

HERE = str(Path(__file__).parent)


async def main() -> int:
    async with AsyncCloudMlClient() as client:
        job = await client.submit_train_job(
            TrainJob(f"slope-{uuid.uuid4().hex[:8]}", "trainer.task", HERE)
        )

        async def show_changes() -> None:
            async for now in job.watch():
                print(f"{now.name}: {now.phase}", file=sys.stderr)

        async def show_log() -> None:
            async for chunk in job.logs(follow=True):
                sys.stdout.buffer.write(chunk)

        # Whoever cancels this, by Ctrl-C or a time limit, closes both connections at once; the job
        # goes on.
        await asyncio.gather(show_changes(), show_log())
        ended = await job.wait()
        await job.delete()
        return 0 if ended.succeeded else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except CloudMlError as error:
        sys.exit(f"{error} {error.hint or ''}")
