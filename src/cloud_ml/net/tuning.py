"""Constants of the implementation that are no settings: each with the reason for its number.

They say how work is cut into steps, or bound what no honest peer comes near. What an operator may
want to change is in ``ConnectionBounds``.
"""

# --- a turn of the event loop; see ``WorkShare`` ---

SLICE = 64
"""Units that a read of a caller's connection may always use, so that a small request never waits
behind floods. A request over HTTP/1.1 counts 8: eight pipelined ones fit in.
"""
NOT_COUNTED = 8
"""Units of one read that are not charged: the number of connections and reads bounds them."""
BYTES_SHIFT = 11
"""2,048 bytes that are read cost a unit: the kernel gives a connection megabytes in one turn."""
MESSAGES_IN_TURN = 16
"""Messages of one stream that are read in a turn: at 16 units each they are about half of a
turn's 500.
"""
SLICE_BYTES = 65_536
"""Bytes that are inflated or compressed at once: a quarter of a millisecond's work, which is
what others may wait.
"""
SLICE_UNITS = 256
"""Units of that work: a unit is about a microsecond."""
WRITTEN_AT_ONCE = 262_144
"""Bytes that are written in one turn: with TLS they are encrypted in it, too."""
SENT_IN_TURN = 524_288
"""Bytes of waiting answers that go out at once: each is copied twice on its way. The next ones
wait for a turn.
"""

# --- memory of long bodies ---

UNJOINED_BYTES = 262_144
"""Bytes from which on a body is not joined where that is not needed: copying them takes a
quarter of a millisecond.
"""
DIRECT_BYTES = 65_536
"""Bytes of a body that are still to come from which on a transport writes them to their place.
For fewer, handing over the transport costs more than the copy that it saves.
"""
GROWTH = 2 << 20
"""Bytes that a body grows by at once: making them ready takes a millisecond."""
FREED_BYTES_KEPT = 64 << 20
"""Bytes that lie free at the end of the heap of a model server and are not given back: as many
as the largest request has by default.
"""
MAPPED_BYTES_OF_MODELS = 32 << 20
"""From this size on a piece is asked of the kernel, and given back, by itself: the most that
glibc allows.
"""
MAPPED_BYTES_OF_BODIES = 1 << 20
"""The same for a process that passes bodies on. The kernel moves such a piece by its pages when
it grows.
"""

# --- the protocol ---

FAREWELL_S = 2.0
"""Seconds for which a connection that leaves waits for a request that may be on its way: longer
than a caller in a loop pauses, short beside what a server has for its end.
"""

MOST_SETTINGS = 64
"""Parameters of one SETTINGS frame that are read. RFC 9113 has six; ten times as many leave room
for extensions.
"""
