"""TLS for every port: TensorFlow Serving's ``SSLConfig`` file, over the event loop's own TLS."""

import os
import ssl
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message, pool


def tls_context(file: Path) -> ssl.SSLContext:
    """TLS 1.2 and later, h2 and HTTP/1.1, as a file says.

    It has ``server_key`` and ``server_cert``, and for clients with certificates ``custom_ca`` and
    ``client_verify``.

    Raises:
        BadRequest: where the file cannot be read or its parts do not go together. No key stands in
            the message.
    """
    made: Any = message("tensorflow.serving.SSLConfig")()
    try:
        text_format.Parse(file.read_text(), made, descriptor_pool=pool())
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"--ssl_config_file: {file} cannot be read: {error}") from error
    # The parser's own message may quote a line that holds a key.
    except text_format.ParseError as error:
        raise BadRequest(
            f"--ssl_config_file: {file} is no SSLConfig, line {error.GetLine()}"
        ) from None
    if not made.server_key or not made.server_cert:
        raise BadRequest(f"--ssl_config_file: {file} needs server_key and server_cert, as PEM")
    if made.client_verify and not made.custom_ca:
        raise BadRequest(
            f"--ssl_config_file: {file} has client_verify and no custom_ca to verify with"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        _load_pair(context, made.server_cert, made.server_key)
        if made.custom_ca:
            context.load_verify_locations(cadata=made.custom_ca)
    except (ssl.SSLError, ValueError) as error:
        raise BadRequest(
            f"--ssl_config_file: {file}: key, certificate or CA is no PEM or they do not match"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED if made.client_verify else ssl.CERT_NONE
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """``ssl`` reads keys from files only: one in memory that nobody else sees."""
    descriptor = os.memfd_create("tls")
    try:
        # Of a copy, since `fdopen` closes what it is given: with the last descriptor the memory is
        # gone.
        with os.fdopen(os.dup(descriptor), "w") as file:
            file.write(certificate + "\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
