"""The SDK for programs that await: the same calls as ``cloud_ml.client``, in an event loop."""

from cloud_ml.aio.client import AsyncCloudMlClient

__all__ = ["AsyncCloudMlClient"]
