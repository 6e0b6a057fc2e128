"""PyTorch on several processes: cloudml run pytorch_ddp.py -F pytorch -w 2"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    values = torch.randn(32, 4)
    loss = ((model(values) - values.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
print(f"rank {dist.get_rank()} of {dist.get_world_size()} found {model.module.weight.mean():.2f}")
dist.destroy_process_group()
