"""Make ``descriptors.bin`` from the files beside it; ``make format`` does it, with grpcio-tools."""

import sys
import tempfile
from importlib import resources
from pathlib import Path

HERE = Path(__file__).parent


def descriptors() -> bytes:
    """The compiled set, with what it imports, in a stable order."""
    from grpc_tools import protoc  # noqa: PLC0415 - a tool of developers

    well_known = str(resources.files("grpc_tools").joinpath("_proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        names = sorted(path.name for path in HERE.glob("*.proto"))
        arguments = [
            "protoc",
            f"-I{HERE}",
            f"-I{well_known}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            *names,
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit(1)
        return out.read_bytes()


def main() -> None:
    """Write the file, or with ``--check`` say whether it is what the sources make."""
    target, made = HERE / "descriptors.bin", descriptors()
    if "--check" not in sys.argv[1:]:
        target.write_bytes(made)
    elif target.read_bytes() != made:
        raise SystemExit("descriptors.bin is not what the .proto files make: run make format")


if __name__ == "__main__":
    main()
