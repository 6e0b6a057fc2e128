"""Heads larger than they may be: read to their end where that is near, so that only their own
request is refused.
"""

from cloud_ml.net.http1.heads import CHUNKED, MOST_FIELDS, Head, HeadTooLarge, read_head
from cloud_ml.net.http1.limits import Limits

OVERSIZED = 4
"""Times the bounds of a head up to which a larger one is read to its end, so that only its own
request is refused.
"""


def end_of_oversized(data: bytes, at: int, limits: Limits) -> int:
    """Where such a head ends that begins at ``at``; 0 where its end has not come.

    Raises:
        HeadTooLarge: It is too large to wait for its end.
    """
    bound = OVERSIZED * limits.head_bytes
    stop = data.find(b"\r\n\r\n", at, at + bound) + 4
    if stop >= 4:
        return stop
    if len(data) - at >= bound:
        raise _too_large(limits)
    return 0


def oversized_head(text: bytes, limits: Limits) -> Head:
    """Such a head with its refusal: it costs no other request where the end of its own is near and
    certain.

    Raises:
        HeadFault: The end is neither, or it breaks another rule.
    """
    head = read_head(text, OVERSIZED * MOST_FIELDS)
    if head.expects or head.length == CHUNKED or head.length > limits.dropped_body_bytes:
        raise _too_large(limits)
    head.refusal = _too_large(limits)
    return head


def _too_large(limits: Limits) -> HeadTooLarge:
    return HeadTooLarge(f"a head of more than {limits.head_bytes} bytes or {MOST_FIELDS} fields")
