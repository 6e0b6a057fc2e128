"""JAX on several processes: cloudml run jax_processes.py -F jax -w 2"""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()
mine = jnp.array([jax.process_index() + 1.0])
everybody = multihost_utils.process_allgather(mine)
print(f"process {jax.process_index()} of {jax.process_count()} found {float(everybody.sum()):.2f}")
