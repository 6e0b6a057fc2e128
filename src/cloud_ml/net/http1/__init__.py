"""A small, strict HTTP/1.1 server side: RFC 9112, with bounds on everything and no coroutine for a
request.

What two readers could understand in two ways is refused: folded lines, two lengths, a length beside
chunks.
"""
