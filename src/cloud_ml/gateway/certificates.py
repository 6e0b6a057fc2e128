"""The certificate that services show: made a context of, and followed when its files change."""

from __future__ import annotations

import hashlib
import logging
import ssl
from pathlib import Path

logger = logging.getLogger(__name__)


def context(cert: str, key: str) -> ssl.SSLContext | None:
    """TLS from 1.2 on, for HTTP/1.1 and HTTP/2; nothing without a certificate.

    Raises:
        OSError: The files cannot be read, or do not belong together (``ssl.SSLError``).
    """
    if not cert:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["h2", "http/1.1"])
    # Renegotiation in TLS 1.2 costs the server much more than its peer (CVE-2011-1473); compression
    # tells the length of secrets (CRIME, CVE-2012-4929).
    made.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    made.load_cert_chain(cert, key or None)
    return made


def digest(cert: str, key: str) -> str:
    """A digest of both files; empty without a certificate."""
    if not cert:
        return ""
    return hashlib.sha256(
        Path(cert).read_bytes() + (Path(key).read_bytes() if key else b"")
    ).hexdigest()


class CertificateWatcher:
    """Looks whether the files have become another certificate. A pair that does not fit, or not
    yet, is left alone.
    """

    def __init__(self, cert: str, key: str) -> None:
        self._cert = cert
        self._key = key
        self._fingerprint: tuple[object, ...] = self._look()

    def renewed(self) -> str | None:
        """The digest of a new pair, once; ``None`` while there is none."""
        found = self._look()
        if found == self._fingerprint:
            return None
        self._fingerprint = found
        try:
            context(self._cert, self._key)
            return digest(self._cert, self._key)
        except (
            OSError
        ) as error:  # in the middle of being written, or wrong: the next change is looked at again
            logger.warning(
                "the certificate %s has changed and cannot be used: %s", self._cert, error
            )
            return None

    def _look(self) -> tuple[object, ...]:
        """What changes with the files; cheap."""
        found: list[object] = []
        for path in filter(None, (self._cert, self._key)):
            try:
                status = Path(path).stat()
            except OSError:
                found.append(None)
            else:
                found.append(
                    (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
                )
        return tuple(found)
