"""Memory of servers that have answered once, and what one more model costs ours: proportional set
size of the tree.

Run: ``python benchmarks/run.py serving.memory``.
"""

from __future__ import annotations

from pathlib import Path

from harness import Figure, temporary_folder

from serving.cost import answers_well, passed_over
from serving.models import rows, save
from serving.queries import OIP, TFS, V1, question
from serving.servers import OTHERS, OURS, ours, theirs, version

MORE = 20
ALONE_MB, EACH_MB = 120.0, 5.0
"""A server with one model; one more MLP, whose weights are 2.7 MB."""


def run() -> list[Figure]:
    with temporary_folder() as folder:
        file = save("mlp", folder / "mlp")
        names = [f"mlp{number}" for number in range(MORE)]
        for name in names:
            save("mlp", folder / name)
        mine = _ours(folder, ["mlp"])
        each = (_ours(folder, ["mlp", *names]) - mine) / MORE
        figures = [
            Figure(
                "one more MLP: memory (PSS)",
                each,
                "MB",
                EACH_MB,
                file.stat().st_size / 2**20,
                "its file",
            )
        ]
        for peer, kind in OTHERS.items():
            way = OIP if OIP in kind.ways else V1
            with passed_over(kind.name), theirs(peer, file) as running:
                answers_well(
                    running, question(way, "mlp", rows("mlp", 1), kind.path), file, "mlp", 1
                )
                megabytes = running.memory_mb()
                print(f"  {kind.name}: {megabytes:.0f} MB", flush=True)
                figures.append(
                    Figure(
                        "server with one MLP: memory (PSS)",
                        mine,
                        "MB",
                        ALONE_MB,
                        megabytes,
                        version(peer),
                    )
                )
    return figures


def _ours(folder: Path, names: list[str]) -> float:
    with ours(folder, names) as running:
        for name in names:
            query = question(TFS, name, rows("mlp", 1))
            answers_well(running, query, folder / name / "1" / "model.onnx", "mlp", 1)
        print(f"  {OURS.name}, {len(names)} models: {running.memory_mb():.0f} MB", flush=True)
        return running.memory_mb()


if __name__ == "__main__":
    for figure in run():
        print(figure)
