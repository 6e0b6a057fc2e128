"""A sealer for tests in memory. It hides nothing; that is the affair of ``cloud_ml.sealing``."""

from __future__ import annotations

from cloud_ml.errors import Unavailable


class PlainSealer:
    """Keeps values as hexadecimal text. Without its ``key``, nothing opens."""

    def __init__(self) -> None:
        self.key = True

    def seal(self, value: bytes, context: str) -> str:
        self._check()
        return f"{context}:{value[::-1].hex()}"

    def open(self, sealed: str, context: str) -> bytes:
        self._check()
        place, _, text = sealed.partition(":")
        if place != context:
            raise Unavailable("it belongs to another secret")
        return bytes.fromhex(text)[::-1]

    def opens(self, sealed: str) -> bool:
        return self.key

    def _check(self) -> None:
        if not self.key:
            raise Unavailable("there is no sealing key")
