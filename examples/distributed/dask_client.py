"""Dask with a scheduler and workers: cloudml run dask_client.py --recipe dask -w 2"""

import random

from distributed import Client, get_worker


def count_inside(seed):
    """How many of 100,000 points of the unit square are in the circle, and who has counted."""
    rng = random.Random(seed)
    inside = sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(100_000))
    return inside, get_worker().name


with Client() as client:  # the address is in DASK_SCHEDULER_ADDRESS
    client.wait_for_workers(2)
    results = client.gather(client.map(count_inside, range(20)))
total = sum(inside for inside, _ in results)
names = sorted({name for _, name in results})
print(f"{' and '.join(names)} found {4 * total / 2_000_000:.2f}")
