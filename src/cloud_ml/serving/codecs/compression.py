"""Bodies that were compressed, read with a bound."""

import zlib

from cloud_ml.serving.errors import BadRequest, TooLarge


def decompressed(data: bytes | bytearray, encoding: str, most: int) -> bytes:
    """What was compressed by gzip or deflate, if it is not larger than ``most``.

    Raises:
        BadRequest: where it is damaged.
        TooLarge: where it is larger.
    """
    reader = zlib.decompressobj(31 if encoding == "gzip" else 15)
    try:
        made = reader.decompress(data, most + 1)
    except zlib.error as error:
        raise BadRequest(f"the message is no {encoding}: {error}") from error
    if len(made) > most:
        raise TooLarge(f"the message is larger than {most} bytes when it is decompressed")
    if not reader.eof or reader.unused_data:
        raise BadRequest(f"the message is no whole {encoding}")
    return made
