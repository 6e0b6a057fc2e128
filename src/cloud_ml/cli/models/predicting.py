"""``cloudml models predict``: asks a model what a data file says."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from cloud_ml.cli.completion.candidates import files, model_names, model_versions
from cloud_ml.cli.display.output import echo, echo_document, output_option
from cloud_ml.cli.models.names import find_name
from cloud_ml.cli.options.numbers import Number
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.paths.local import local_path
from cloud_ml.text_encoding import decode_text

_USUAL = "Usual is: cloudml models predict NAME VERSION -d data.json"


@click.command()
@click.argument("name", required=False, shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@click.option("-n", "--model_name", metavar="NAME", help="The same as NAME.")
@click.option("-v", "--model_version", metavar="VERSION", help="The same as VERSION.")
@click.option(
    "-d", "--data", "-f", "--filename", "source", metavar="FILE", shell_complete=files,
    help='File with JSON such as {"X": [[10.0]], "X_dtype": "float32"}, or this JSON itself; - '
         'is standard input.',
)  # fmt: skip
@click.option("--http", is_flag=True, help="Call over HTTP instead of gRPC.")
@click.option("--signature", metavar="NAME", help="Use this signature instead of the default one.")
@click.option(
    "--release", metavar="WHICH", help="Release that answers: stable, candidate, or a number."
)
@click.option(
    "-s", "--server", metavar="HOST:PORT", help="Call this address instead of the service's."
)
@click.option("-t", "--timeout", type=Number(0, above=True), default=10, show_default=True,
              metavar="SECONDS", help="Time limit of the call.")  # fmt: skip
@output_option()
@pass_session
def predict(
    session: Session,
    *,
    name: str | None,
    version: str | None,
    model_name: str | None,
    model_version: str | None,
    source: str | None,
    http: bool,
    signature: str | None,
    release: str | None,
    server: str | None,
    timeout: float,
    output: str | None,
) -> None:
    """Call a model, over gRPC unless --http is given.

    \b
    cloudml models predict linear v1 -d data.json
    echo '{"X": [[10.0]]}' | cloudml models predict linear v1 -d - --http

    The data file has a key for each input. Types stand beside them (X_dtype); those that are not
    given are what the model takes. Outputs are printed as JSON, by name. Rows such as
    [[10.0], [20.0]], and requests for TensorFlow Serving (instances, inputs) and MLflow
    (dataframe_split) are taken too. Rows are sent over HTTP.
    """
    from cloud_ml.sdk.models.inference import read_inputs

    if (model := name or model_name) is None:
        raise click.UsageError("missing: NAME. " + _USUAL)
    if source is None:
        raise click.UsageError("missing: -d FILE. " + _USUAL)
    inputs = read_inputs(_read(source))
    grpc = not http and not isinstance(inputs.values, list)
    if server is not None:
        at = session.client.predictions(server, model)
        answer = (
            at.over_grpc(inputs, signature=signature, release=release, timeout=timeout, short=True)
            if grpc
            else at.over_http(inputs, signature=signature, release=release, timeout=timeout)
        )
    else:
        handle = session.client.get_model_service(
            *find_name(session, model, version or model_version)
        )
        answer = handle.predict(
            inputs, signature=signature, grpc=grpc, release=release, timeout=timeout, short=True
        )
    if output is None and isinstance(answer, list):
        lines = [f"  {json.dumps(value, ensure_ascii=False)}" for value in answer]
        echo("[\n" + ",\n".join(lines) + "\n]")
    # One line for each output: a column of a hundred rows would fill the screen.
    elif output is None:
        lines = [
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            for key, value in answer.items()
        ]
        echo("{\n" + ",\n".join(lines) + "\n}")
    else:
        echo_document(answer)


def _read(source: str) -> Any:
    if source.lstrip().startswith(("{", "[")):
        return _parse_json(source, "the text after -d")
    try:
        text = sys.stdin.read() if source == "-" else decode_text(local_path(source).read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InvalidRequest(
            f"{source} cannot be read: {why}", field="data", value=source
        ) from None
    return _parse_json(text, source)


def _parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"{source} is not valid JSON: {error}", field="data", value=source,
            allowed='an object such as {"X": [[10.0]], "X_dtype": "float32"}',
        ) from None  # fmt: skip
