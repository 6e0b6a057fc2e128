"""Questions to a model, over HTTP or gRPC, with a token: made here of the caller's key, or the
caller's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cloud_ml.aio.clock import in_thread
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.errors import CloudMlError
from cloud_ml.sdk.arrays import SupportsArray, for_json, is_rows
from cloud_ml.sdk.config import Credentials, TokenCredentials
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.inference import are_named, asking, authorization, only_output, refusal_of
from cloud_ml.sdk.messages import Request, segment

Inputs = Mapping[str, Any] | list[Any] | SupportsArray


class AsyncPredictions:
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
        self._singles: dict[tuple[str | None, str | None], str] = {}

    async def aclose(self) -> None:
        """Close connections that are kept open."""
        await self._transport.aclose()

    async def over_http(
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
        asked: dict[str, Any] = {"instances": inputs} if is_rows(inputs) else {"inputs": inputs}
        if signature:
            asked["signature_name"] = signature
        request = Request(
            "POST",
            f"/v1/models/{segment(self.name)}:predict",
            body=json.dumps(asked, default=for_json).encode(),
            headers={"Content-Type": "application/json", **asking(release)},
            idempotency_key="prediction",  # a model answers the same however often it is asked
            read_timeout_s=timeout,
        )
        answer = await self._transport.json(request)
        if "predictions" in answer:
            return answer["predictions"]
        outputs = answer["outputs"]
        if are_named(outputs):
            return outputs
        return {await self._single_output(signature, release, timeout): outputs}

    async def over_grpc(
        self,
        inputs: Mapping[str, Any],
        types: Mapping[str, str],
        *,
        signature: str | None = None,
        release: str | None = None,
        timeout: float = 60.0,
        short: bool = False,
    ) -> dict[str, Any]:
        """What the model answers, by TensorFlow Serving's ``PredictionService``: the outputs by
        name.

        With ``short`` a float32 is 29.955246, as over HTTP, and not 29.955245971679688: for people.

        Raises:
            InvalidRequest: The inputs do not fit; the message says what would.
            Unavailable: No replica answers now.
        """
        from cloud_ml.sdk import grpc, tensors

        message = tensors.predict_request(self.name, inputs, types, signature)
        headers = {
            name.lower(): value
            for name, value in authorization(self._credentials, self._endpoint).items()
        }
        headers |= asking(release)
        answer = await in_thread(
            lambda: grpc.call(self._endpoint, tensors.METHOD, message, headers, timeout_s=timeout)
        )  # fmt: skip
        return tensors.predict_response(answer, short=short)

    async def _single_output(
        self, signature: str | None, release: str | None, timeout: float
    ) -> str:
        """The name of the only output of a signature, which REST leaves out; asked for once."""
        key = signature, release
        if key not in self._singles:
            path = f"/v1/models/{segment(self.name)}/metadata"
            told = await self._transport.json(
                Request("GET", path, headers=asking(release), read_timeout_s=timeout)
            )
            self._singles[key] = only_output(told, signature)
        return self._singles[key]


class _ServiceTransport(AsyncTransport):
    """Requests to a model server: with a token instead of a signature, and refusals in its form."""

    def _signed(self, request: Request, nonce: str | None) -> tuple[dict[str, str], str]:
        del nonce
        return {**request.headers, **authorization(self.credentials, self.endpoint)}, request.path

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> CloudMlError:
        return refusal_of(status, body) or super()._refusal(status, headers, body)
