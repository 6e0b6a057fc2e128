"""Try several learning rates, a few jobs at a time, and tell which is the best."""

import asyncio
import json
import sys
import uuid
from pathlib import Path

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.errors import CloudMlError
from cloud_ml.models.train_job import TrainJob

HERE = str(Path(__file__).parent)
RATES = (0.1, 0.5, 1.0, 2.0)
AT_ONCE = 2


async def main() -> int:
    study, places = uuid.uuid4().hex[:8], asyncio.Semaphore(AT_ONCE)
    async with AsyncCloudMlClient() as client:
        bucket = (await client.whoami()).default_bucket

        async def try_rate(number: int, rate: float) -> dict[str, float] | None:
            name = f"rate-{study}-{number}"
            out = f"fds://{bucket}/{name}"
            spec = TrainJob(
                name,
                "trainer.task",
                HERE,
                job_args=[f"--rate={rate}", f"--out={out}"],
                labels={"study": study},
            )
            async with places:
                job = await client.submit_train_job(spec)
                ended = await job.wait(timeout=600)
            if not ended.succeeded:
                print(f"{name}: {ended.reason}: {ended.message}", file=sys.stderr)
                return None
            async with await client.storage.open(f"{out}/result.json") as content:
                found: dict[str, float] = json.loads(await content.read())
            print(f"rate {rate}: loss {found['loss']:.6f}")
            return found

        results = await asyncio.gather(*(try_rate(*one) for one in enumerate(RATES)))
        best = min((one for one in results if one), key=lambda one: one["loss"], default=None)
        async for summary in client.list_train_jobs(labels={"study": study}):
            await client.delete_train_job(summary.name)
    print("best:", "none" if best is None else best["rate"])
    return 0 if best else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except CloudMlError as error:
        sys.exit(f"{error} {error.hint or ''}")
