"""Export small PyTorch programs, and tell as JSON which of them are proven to keep their rows
apart, and why not.
"""

import json

import torch
from torch.nn import functional

from cloud_ml.serving.independence import torch_graph
from cloud_ml.serving.independence.tensor_info import NotIndependent

MIXES = {
    "softmax": lambda x: x.softmax(0),
    "mean": lambda x: x - x.mean(0),
    "mean of all": lambda x: x - x.mean(),
    "cumulative sum": lambda x: x.cumsum(0),
    "gram matrix": lambda x: x @ x.transpose(0, 1) @ x,
    "flatten": lambda x: x.flatten().softmax(0).view(x.shape[0], 4),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "sort": lambda x: x.sort(0)[0],
    "first row": lambda x: x - x[0],
    "chosen row": lambda x: x - x[torch.tensor([0])],
    "random": lambda x: x + torch.randn_like(x),
    "batch norm in training mode": lambda x: functional.batch_norm(x, None, None, training=True),
    "dropout in training mode": lambda x: functional.dropout(x, 0.5, training=True),
    "number of rows": lambda x: x * x.shape[0],
    "place among the rows": lambda x: x + torch.arange(x.shape[0])[:, None],
    "concat": lambda x: x - torch.cat([x, x]).max(0)[0],
    "transposed softmax": lambda x: x.t().softmax(-1).t(),
    "attention across rows": lambda x: functional.scaled_dot_product_attention(
        x[None], x[None], x[None]
    )[0],
    "einsum": lambda x: x @ torch.einsum("bi,bj->ij", x, x),
    "top k": lambda x: x - x.topk(1, 0)[0],
    "stack": lambda x: torch.stack([x, x]).sum(0).softmax(0),
    "triangle": lambda x: x.triu(),
    "standard deviation": lambda x: x / x.std(0),
    "sum in a constant": lambda x: x + torch.full((x.shape[0], 4), 1.0) * x.sum(),
}
APART = {
    "linear": lambda x: x * 2 + 1,
    "softmax inside rows": lambda x: x.softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, (4,)),
    "views": lambda x: x.view(-1, 2, 2).transpose(1, 2).reshape(x.shape[0], 4),
    "constants for each row": lambda x: x + torch.zeros(x.shape[0], 4),
    "concat inside rows": lambda x: torch.cat([x, x], 1)[:, :4],
    "rows last and back": lambda x: (x.t() * 2).t(),
}


class Program(torch.nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, x):
        return self.run(x)


class WithoutGradients(torch.nn.Module):
    """Runs a function of the number of rows in a graph of its own, as ``torch.no_grad`` is
    exported.
    """

    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, x):
        with torch.no_grad():
            made = self.run(x.shape[0])
        return x * made.sum()


class Chosen(torch.nn.Module):
    """Chooses by the number of rows between two graphs that take nothing."""

    def forward(self, x):
        return x * torch.cond(x.shape[0] > 2, lambda: torch.ones(4), lambda: torch.zeros(4), ())


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


def network():
    layers = [
        torch.nn.Linear(4, 8),
        torch.nn.ReLU(inplace=True),
        torch.nn.Dropout(),
        torch.nn.Linear(8, 4),
    ]
    return torch.nn.Sequential(*layers)


def convolutions():
    layers = [
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
    ]
    return torch.nn.Sequential(
        *layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4)
    )


def encoder():
    return torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def reason(module, x):
    rows = torch.export.Dim("rows", min=1, max=4096)
    exported = torch.export.export(module.eval(), (x,), dynamic_shapes=({0: rows},))
    try:
        torch_graph.check(exported)
    except NotIndependent as refusal_error:
        return str(refusal_error)
    return ""


def main():
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    reasons = {f"mixes: {name}": reason(Program(run), x) for name, run in MIXES.items()}
    reasons["mixes: counter"] = reason(Counter(), x)
    reasons["mixes: number of rows in a graph of its own"] = reason(
        WithoutGradients(torch.arange), x
    )
    reasons["mixes: random in a graph of its own"] = reason(
        WithoutGradients(lambda _: torch.rand(4)), x
    )
    reasons["mixes: a graph chosen by the number of rows"] = reason(Chosen(), x)
    reasons |= {f"apart: {name}": reason(Program(run), x) for name, run in APART.items()}
    reasons["apart: network"] = reason(network(), x)
    reasons["apart: convolutions"] = reason(convolutions(), torch.randn(3, 3, 8, 8))
    reasons["apart: encoder"] = reason(encoder(), torch.randn(3, 5, 16))
    print(json.dumps(reasons))


if __name__ == "__main__":
    main()
