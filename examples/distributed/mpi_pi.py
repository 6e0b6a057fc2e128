"""MPI with mpi4py: cloudml run mpi_pi.py --recipe mpi -w 2"""

import random

from mpi4py import MPI

comm = MPI.COMM_WORLD
rng = random.Random(comm.rank)  # each process has its part of the work
inside = sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(1_000_000))
total = comm.reduce(inside, root=0)
if comm.rank == 0:
    print(f"{comm.size} processes found {4 * total / 1_000_000 / comm.size:.2f}")
