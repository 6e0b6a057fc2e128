"""A linear layer, exported and scripted."""

import json
import sys
from pathlib import Path

import torch

out = Path(sys.argv[1])
torch.manual_seed(0)
layer = torch.nn.Linear(4, 2)
rows = torch.export.Dim("rows")
for name in ("exported", "scripted"):
    (out / name / "1").mkdir(parents=True)
program = torch.export.export(layer, (torch.zeros(2, 4),), dynamic_shapes={"input": {0: rows}})
torch.export.save(program, out / "exported" / "1" / "model.pt2")
torch.jit.script(layer).save(str(out / "scripted" / "1" / "model.pt"))
signature = {
    "inputs": [{"name": "input", "dtype": "float32", "shape": [-1, 4]}],
    "outputs": [{"name": "output_0", "dtype": "float32", "shape": [-1, 2]}],
}
(out / "scripted" / "1" / "signature.json").write_text(json.dumps(signature))
given = [[1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 0.0, 9.0]]
made = layer(torch.tensor(given)).detach().numpy().tolist()
print(
    json.dumps(
        {
            name: {"input": "input", "x": given, "output": "output_0", "y": made}
            for name in ("exported", "scripted")
        }
    )
)
