# Made of aio/models/predicting.py by tools/twins.py: change that one, then run `make format`.
"""Questions to a model, over HTTP or gRPC, with a token: made here of the caller's key, or the
caller's own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cloud_ml.errors import CloudMlError
from cloud_ml.sdk.clock import in_thread
from cloud_ml.sdk.config import Credentials, TokenCredentials
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.messages import Request, segment
from cloud_ml.sdk.models.arrays import SupportsArray, for_json, is_rows
from cloud_ml.sdk.models.inference import (
    ModelInputs,
    Table,
    address_hint,
    are_named,
    authorization,
    by_name,
    given_inputs,
    input_types,
    not_a_model_service,
    only_output,
    refusal_of,
    release_header,
    trained_columns,
)
from cloud_ml.sdk.transport import Transport

Inputs = Mapping[str, Any] | list[Any] | SupportsArray | ModelInputs


class Predictions:
    """Asks a model at an address.

    Args:
        credentials: Whose token to send.
        address: ``host:port``, or a URL.
        name: Of the model.
    """

    def __init__(
        self, credentials: Credentials | TokenCredentials, address: str, name: str
    ) -> None:
        self.address = address
        self.name = name
        self._credentials = credentials
        self._endpoint = parse_endpoint(address if "://" in address else f"http://{address}")
        self._transport = _ServiceTransport(self._endpoint, credentials)
        self._metadata_by_release: dict[str | None, Any] = {}

    def close(self) -> None:
        """Close connections that are kept open."""
        self._transport.close()

    def over_http(
        self,
        inputs: Inputs,
        *,
        signature: str | None = None,
        release: str | None = None,
        timeout: float = 60.0,
    ) -> Any:
        """What the model answers, by TensorFlow Serving's REST API: outputs by name for columns,
        predictions for rows.

        Raises:
            InvalidRequest: The inputs do not fit; the message says what would.
            Unavailable: No replica answers now.
        """
        with address_hint():
            return self._ask_http(given_inputs(inputs), signature, release, timeout)

    def _ask_http(
        self, given: ModelInputs, signature: str | None, release: str | None, timeout: float
    ) -> Any:
        signature = signature or given.signature or None
        values = self._values(given, signature, release, timeout)
        body: dict[str, Any] = {"instances": values} if is_rows(values) else {"inputs": values}
        if signature:
            body["signature_name"] = signature
        request = Request(
            "POST",
            f"/v1/models/{segment(self.name)}:predict",
            body=json.dumps(body, default=for_json).encode(),
            headers={"Content-Type": "application/json", **release_header(release)},
            idempotency_key="prediction",  # a model answers the same however often it is asked
            read_timeout_s=timeout,
        )
        answer = self._transport.json(request)
        if "predictions" in answer:
            return answer["predictions"]
        outputs = answer["outputs"]
        if are_named(outputs):
            return outputs
        return {self._single_output(signature, release, timeout): outputs}

    def over_grpc(
        self,
        inputs: Inputs,
        types: Mapping[str, str] = MappingProxyType({}),
        *,
        signature: str | None = None,
        release: str | None = None,
        timeout: float = 60.0,
        short: bool = False,
    ) -> dict[str, Any]:
        """What the model answers, by TensorFlow Serving's ``PredictionService``: the outputs by
        name. Inputs without a type have the type that the model takes.

        With ``short`` a float32 is 29.955246, as over HTTP, and not 29.955245971679688: for people.

        Raises:
            InvalidRequest: The inputs do not fit; the message says what would.
            Unavailable: No replica answers now.
        """
        from cloud_ml.sdk.models import grpc, tensors

        given = given_inputs(inputs)
        signature = signature or given.signature or None
        values = self._values(given, signature, release, timeout)
        types = {**given.types, **types}
        if not isinstance(values, Mapping) or not values.keys() <= types.keys():
            known = self._inputs(signature, release, timeout)
            if len(known) == 1 and not isinstance(values, Mapping):
                values = {next(iter(known)): values}
            types = {name: kind for name, kind in known.items() if kind} | types
        columns = by_name(values)
        message = tensors.predict_request(self.name, columns, types, signature)
        headers = {
            name.lower(): value
            for name, value in authorization(self._credentials, self._endpoint).items()
        }
        headers |= release_header(release)
        with address_hint():
            answer = in_thread(
                lambda: grpc.call(
                    self._endpoint, tensors.METHOD, message, headers, timeout_s=timeout
                )
            )  # fmt: skip
        return tensors.predict_response(answer, short=short)

    def _values(
        self, given: ModelInputs, signature: str | None, release: str | None, timeout: float
    ) -> Any:
        """The values as the model takes them: those of a table as columns or as rows."""
        if not isinstance(given.values, Table):
            return given.values
        names = self._inputs(signature, release, timeout)
        metadata = self._metadata(release, timeout) if names else None
        return given.values.for_inputs(names, trained_columns(metadata, signature))

    def _inputs(self, signature: str | None, release: str | None, timeout: float) -> dict[str, str]:
        """The inputs of a signature with their types; empty if the model does not tell them.

        A server may have its REST API at another port. The call itself then says what is wrong.
        """
        with contextlib.suppress(CloudMlError):
            return input_types(self._metadata(release, timeout), signature)
        return {}

    def _single_output(self, signature: str | None, release: str | None, timeout: float) -> str:
        """The name of the only output of a signature, which REST leaves out."""
        return only_output(self._metadata(release, timeout), signature)

    def _metadata(self, release: str | None, timeout: float) -> Any:
        """What the model tells of itself; asked for once."""
        if release not in self._metadata_by_release:
            path = f"/v1/models/{segment(self.name)}/metadata"
            request = Request("GET", path, headers=release_header(release), read_timeout_s=timeout)
            self._metadata_by_release[release] = self._transport.json(request)
        return self._metadata_by_release[release]


class _ServiceTransport(Transport):
    """Requests to a model server: with a token instead of a signature, and refusals in its form."""

    def _sign_request(self, request: Request, nonce: str | None) -> tuple[dict[str, str], str]:
        del nonce
        return {**request.headers, **authorization(self.credentials, self.endpoint)}, request.path

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> CloudMlError:
        error = refusal_of(status, body)
        if error is None and "x-request-id" in headers:
            return not_a_model_service(self.endpoint)
        return error or super()._refusal(status, headers, body)
