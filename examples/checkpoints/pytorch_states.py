"""PyTorch: the states of model and optimizer in one file."""

import os

import torch

from cloud_ml import job

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
if start := job.latest():
    states = torch.load(start.path)
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    step = start.step
print("starts at step", step)
while step < 30:
    step += 1
    loss = (model(torch.ones(8, 1)) - 2).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        path = os.path.join(job.checkpoint_dir(), f"step-{step}.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        job.saved(path, step)
    if step == 15 and os.environ["CLOUDML_ATTEMPT"] == "1":
        os._exit(1)  # a failure
print("trained")
