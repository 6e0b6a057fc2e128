"""PyTorch's exported programs and TorchScript."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence import torch_graph
from cloud_ml.serving.independence.evidence import Evidence, proven
from cloud_ml.serving.runtimes import signature_file
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, LoadOptions
from cloud_ml.serving.runtimes.imports import import_framework, import_lock
from cloud_ml.serving.runtimes.load_advice import cannot_load, check_torch_script, user_name
from cloud_ml.serving.runtimes.output_discovery import complete_outputs
from cloud_ml.serving.signatures import Signature, TensorSpec


class TorchModel:
    """A callable of tensors, in the order of the signature."""

    def __init__(self, run: Callable[..., Any], signatures: dict[str, Signature]) -> None:
        import torch  # noqa: PLC0415

        self._run: Callable[..., Any] | None = run
        self._torch = torch
        self.signatures: Mapping[str, Signature] = signatures
        self.evidence: Mapping[str, Evidence] = {}

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        assert self._run is not None
        torch = self._torch
        with torch.inference_mode():
            made = self._run(
                *[
                    # PyTorch has no read-only tensors: a model that works in place would change the
                    # bytes of a request.
                    torch.from_numpy(each if each.flags.writeable else each.copy())
                    for each in inputs
                ]
            )
            if isinstance(made, dict):
                made = [made[spec.inner] for spec in signature.outputs]
            parts = made if isinstance(made, list | tuple) else (made,)
            return [each.detach().cpu().numpy() for each in parts]

    def close(self) -> None:
        self._run = None


class ExportedProgramRuntime:
    """``model.pt2``: what ``torch.export.save`` wrote."""

    name = "pytorch-export"
    runs_code = True

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.pt2").is_file()

    def load(self, folder: Path, options: LoadOptions) -> TorchModel:
        try:
            torch = import_framework("torch")  # seconds, only where such a model is served

            torch.set_num_threads(1)
            with import_lock():  # it imports much of torch
                program = torch.export.load(folder / "model.pt2")
            signatures = signature_file.read(folder) or {
                DEFAULT_SIGNATURE: _describe_program(program)
            }
            model = TorchModel(program.module(), signatures)
        except ModelFailed:
            raise
        except Exception as error:
            raise cannot_load(folder / "model.pt2", "PyTorch", error) from error
        found = proven(
            "graph",
            "every operator of the graph keeps rows apart",
            partial(torch_graph.check, program),
        )
        model.evidence = dict.fromkeys(signatures, found)
        return model


class TorchScriptRuntime:
    """``model.pt``: what ``torch.jit.save`` wrote. It does not tell shapes: ``signature.json``
    does.
    """

    name = "torchscript"
    runs_code = True

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.pt").is_file()

    def load(self, folder: Path, options: LoadOptions) -> TorchModel:
        check_torch_script(folder / "model.pt")
        signatures = signature_file.require(folder, "TorchScript", user_name(folder / "model.pt"))
        try:
            torch = import_framework("torch")
            torch.set_num_threads(1)
            # It may have been saved on a GPU, which a replica need not have.
            module = torch.jit.load(folder / "model.pt", map_location="cpu").eval()
        except Exception as error:
            raise cannot_load(folder / "model.pt", "PyTorch", error) from error
        return TorchModel(module, complete_outputs(signatures, module_outputs(module, torch)))


def module_outputs(
    module: Callable[..., Any], torch: Any
) -> Callable[[Signature, Sequence[Array]], Mapping[str, Array]]:
    """What calls a module with arrays and names its outputs: ``output``, or ``output_0`` and so
    on.
    """

    def run(_signature: Signature, inputs: Sequence[Array]) -> Mapping[str, Array]:
        with torch.inference_mode():
            made = module(*[torch.from_numpy(each) for each in inputs])
        if isinstance(made, dict):
            return {str(name): value.detach().cpu().numpy() for name, value in made.items()}
        if isinstance(made, list | tuple):
            return {
                f"output_{place}": value.detach().cpu().numpy() for place, value in enumerate(made)
            }
        return {"output": made.detach().cpu().numpy()}

    return run


def _describe_program(program: Any) -> Signature:
    """From the graph of a program: its placeholders and what it returns."""
    nodes = {node.name: node for node in program.graph.nodes}
    given = tuple(
        _spec(name, nodes[name].meta["val"]) for name in program.graph_signature.user_inputs
    )
    made = tuple(
        _spec(f"output_{place}", nodes[name].meta["val"])
        for place, name in enumerate(program.graph_signature.user_outputs)
    )
    return Signature(DEFAULT_SIGNATURE, given, made)


def _spec(name: str, value: Any) -> TensorSpec:
    dtype = dtypes.BY_NAME.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise ModelFailed(f"{name!r} is {value.dtype}, which no protocol here carries")
    return TensorSpec(
        name,
        dtype,
        tuple(size if isinstance(size, int) else -1 for size in value.shape),
        inner=name,
    )
