"""Which known modules the classes of a pickled model come from; nothing is loaded.

The bytes are a tenant's, and this runs in the server. So it searches for a few fixed names in
linear time, and looks closer only at a bounded number of places. The only decoder is zlib, which
the server uses for bodies of requests as well. bz2 and LZMA, whose files choose how much memory
they take, are not opened.
"""

import re
import zlib
from collections.abc import Collection, Iterable, Iterator

MOST_BYTES = 16 * 1024 * 1024
"""So many bytes of a pickle, compressed and decompressed, are searched. Classes come before what
they hold.
"""
_MOST_PLACES = 1000
"""So many places of each name are examined in a part of a pickle."""
_OVERLAP = 1024
_STEP = 1024 * 1024
_ZLIB_HEADS = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda", b"\x1f\x8b")
_REST = re.compile(
    rb"(?:\.[\w.]{1,250})?(?:\x94?\x8c.[\w.]{1,255}\x94?\x93|\n[\w.]{1,255}\n)", re.DOTALL
)
"""What follows the first part of a module's name where a pickle names a class: as protocol 4 and
later have it, or as those before.
"""


def pickled_modules(chunks: Iterable[bytes], names: Collection[str]) -> frozenset[str]:
    """Those of the top-level modules ``names`` whose classes a pickle names.

    joblib may have compressed it with zlib or gzip.
    """
    sought = {name: name.encode() for name in names}
    found: set[str] = set()
    tail, read_bytes = b"", 0
    for part in _plain(chunks):
        window = tail + part
        found.update(each for each, word in sought.items() if _names_a_class(window, word))
        for each in found:
            sought.pop(each, None)
        tail, read_bytes = window[-_OVERLAP:], read_bytes + len(part)
        if read_bytes >= MOST_BYTES or not sought:
            break
    return frozenset(found)


def _names_a_class(window: bytes, word: bytes) -> bool:
    place = -1
    for _ in range(_MOST_PLACES):
        place = window.find(word, place + 1)
        if place < 0:
            return False
        text = window[max(0, place - 2) : place]
        if (text[-1:] == b"c" or text[:1] == b"\x8c") and _REST.match(window, place + len(word)):
            return True
    return False


def _plain(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes without their compression. A broken one ends where it breaks."""
    decoder = None
    for number, chunk in enumerate(chunks):
        if not number and chunk.startswith(_ZLIB_HEADS):
            decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
        if decoder is None:
            yield chunk
            continue
        try:
            plain = decoder.decompress(chunk, _STEP)
            while plain:
                yield plain
                plain = decoder.decompress(decoder.unconsumed_tail, _STEP)
        except zlib.error:
            return
