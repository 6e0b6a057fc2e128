"""Sealing: how secrets lie in the database, and the file of the key that opens them.

A sealed value is ``1:<key id>:<base64 of nonce and AES-256-GCM text>``. The organisation and the
name of the secret are authenticated with it, so that a value that is moved to another record cannot
be opened. The file has a key on each line: the first one seals, and all of them open, so that a key
can be replaced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml import failpoints
from cloud_ml.errors import Unavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES, _NONCE_BYTES = 32, 12
_VERSION = "1"
_LARGEST_FILE = 65_536
_HEAD = "# Opens the secrets in Cloud ML's database. Keep a copy, and not beside copies of the database.\n"
_REMEDY = "see 'The sealing key' in the documentation on secrets"


class NoSealingKey(Unavailable):
    """The key that is needed is not there. The message is for operators and holds nothing
    secret.
    """


@dataclass(frozen=True)
class SealingKey:
    """A key and its id, which tells nothing about the key."""

    id: str
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, key: bytes) -> SealingKey:
        """The key with its id."""
        return cls(hashlib.sha256(b"cloudml sealing key\0" + key).hexdigest()[:16], key)


class KeyFile:
    """Seals and opens with the keys of a file, which is read each time: one that is put back
    works at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def keys(self) -> Sequence[SealingKey]:
        """The keys of the file, the one that seals first; none if there is no file.

        Raises:
            NoSealingKey: The file cannot be read, or is malformed.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read(_LARGEST_FILE)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise NoSealingKey(
                f"the sealing key {self.path} cannot be read: {error.strerror}", hint=_REMEDY
            ) from error
        lines = (line.strip() for line in content.splitlines())
        found = [self._key(line) for line in lines if line and not line.startswith(b"#")]
        if not found:
            raise self._malformed_key()
        return found

    def make(self) -> SealingKey:
        """Write a new key; a crash leaves the whole file or none. What is there stays.

        Raises:
            OSError: It cannot be written.
        """
        key = os.urandom(_KEY_BYTES)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_HEAD.encode() + base64.b64encode(key) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            failpoints.here("sealing.make.before")
            # link(2) and not rename(2): secrets may be sealed with a key that was made meanwhile.
            os.link(draft, self.path)
        except FileExistsError:
            return self.keys()[0]
        finally:
            draft.unlink(missing_ok=True)
        # Store the key before sealing anything: after a power failure, the key must exist if its
        # secrets do.
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return SealingKey.of(key)

    def remove_drafts(self) -> None:
        """Remove keys that a crash has left under another name."""
        for draft in self.path.parent.glob(f".{self.path.name}.*.new"):
            pid = draft.name.removesuffix(".new").rpartition(".")[2]
            if not Path("/proc", pid).exists():
                draft.unlink(missing_ok=True)

    def seal(self, value: bytes, context: str) -> str:
        """The value as it may be stored. ``context`` has to be the same when it is opened.

        Raises:
            NoSealingKey: There is no key.
        """
        keys = self.keys()
        if not keys:
            raise NoSealingKey(f"there is no sealing key at {self.path}", hint=_REMEDY)
        # Random nonces of 96 bits are safe for 2^32 values of one key (NIST SP 800-38D).
        nonce = os.urandom(_NONCE_BYTES)
        text: bytes = _cipher(keys[0]).encrypt(nonce, value, context.encode())
        return f"{_VERSION}:{keys[0].id}:{base64.b64encode(nonce + text).decode('ascii')}"

    def open(self, sealed: str, context: str) -> bytes:
        """The value.

        Raises:
            NoSealingKey: It was sealed with another key, for another context, or is damaged.
        """
        version, _, rest = sealed.partition(":")
        name, _, text = rest.partition(":")
        key = next((one for one in self.keys() if one.id == name), None)
        if version != _VERSION or key is None:
            raise NoSealingKey(
                f"it was sealed with the key {name or '?'}, which is not in {self.path}",
                hint=_REMEDY,
            )
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - where a value is opened, and nowhere else

        try:
            raw = base64.b64decode(text, validate=True)
            value: bytes = _cipher(key).decrypt(
                raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode()
            )
        except (InvalidTag, ValueError) as error:
            raise NoSealingKey(
                "its sealed value is damaged, or belongs to another secret"
            ) from error
        return value

    def opens(self, sealed: str) -> bool:
        """Whether the key of a sealed value is there. Nothing is opened."""
        try:
            return sealed.split(":")[1] in {key.id for key in self.keys()}
        except (NoSealingKey, IndexError):
            return False

    def _key(self, line: bytes) -> SealingKey:
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            raise self._malformed_key() from None
        if len(key) != _KEY_BYTES:
            raise self._malformed_key()
        return SealingKey.of(key)

    def _malformed_key(self) -> NoSealingKey:
        return NoSealingKey(
            f"the sealing key {self.path} is malformed; allowed are lines of {_KEY_BYTES} "
            "bytes in base64",
            hint=_REMEDY,
        )


def _cipher(key: SealingKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - costs every start otherwise

    return AESGCM(key.key)
