"""DistributedDataParallel with gloo. Each rank has a generator of its own for its data, and a
checkpoint has the states of all of them.
"""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from trainer.common import HELD_STEP, STEPS, begin, finish, is_due, resume, save

task = begin()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
dist.init_process_group("gloo")

torch.manual_seed(2016)
network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
torch.manual_seed(rank)
path, step = resume(task, notes=rank == 0)
if path:
    state = torch.load(path)
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"][rank])


def save_checkpoint():
    """The states of all ranks, from the first one."""
    random = [torch.empty_like(torch.get_rng_state()) for _ in range(size)]
    dist.all_gather(random, torch.get_rng_state())
    if rank == 0:
        state = {
            "model": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": random,
        }
        save(task, step, lambda draft: torch.save(state, draft), ".pt")


while step < STEPS:
    if step == HELD_STEP:
        task.here("training")
    values = torch.randn(32, 8)
    loss = ((model(values) - values.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0:
        task.note_step("step", step)
    task.say(f"step {step}")
    if is_due(step):
        save_checkpoint()
if rank == 0:
    weights = {name: value.tolist() for name, value in network.state_dict().items()}
    finish(task, json.dumps(weights))
dist.destroy_process_group()
