"""HTTP/1.1 as the server speaks it: uvicorn's, but what follows a request does not spoil the answer to it."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Patient(HttpToolsProtocol):
    """Answers what it has understood before it hangs up on what it has not.

    The original client, with the HTTP library of its time, ends each GET with an empty chunk that it did not
    announce. Those five bytes are no request; the GET before them is one, and it is under way.
    """

    def send_400_response(self, msg: str) -> None:
        """Hang up over bytes that are no request: after the answer that is under way, if there is one."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            super().send_400_response(msg)
