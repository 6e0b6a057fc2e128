"""Programs that keep rows apart, and programs that centre them, exported and scripted."""

import json
import sys
from pathlib import Path

import torch
from answers import calls, model_calls


class Centred(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(0)


out = Path(sys.argv[1])
torch.manual_seed(0)
x = torch.randn(100, 4).numpy()
network = torch.nn.Sequential(
    torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
).eval()
rows = torch.export.Dim("rows", min=1, max=4096)
modules = {"network": network, "centred": Centred(), "scripted": Centred()}
for name, module in modules.items():
    folder = out / name / "1"
    folder.mkdir(parents=True)
    if name == "scripted":
        torch.jit.script(module).save(str(folder / "model.pt"))
        sides = [{"name": side, "dtype": "float32", "shape": [-1, 4]} for side in ("x", "output_0")]
        (folder / "signature.json").write_text(
            json.dumps({"inputs": sides[:1], "outputs": sides[1:]})
        )
    else:
        program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: rows},))
        torch.export.save(program, folder / "model.pt2")


def answers(module):
    return calls("", "output_0", x, lambda given: module(torch.from_numpy(given)).detach().numpy())


print(
    json.dumps(
        {
            "network": model_calls(["serving_default"], answers(network), given="input"),
            "centred": model_calls([], answers(modules["centred"])),
            "scripted": model_calls([], answers(modules["scripted"])),
        }
    )
)
