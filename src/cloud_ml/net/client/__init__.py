"""The protocols as the SDK speaks them: answers over HTTP/1.1, one call over gRPC.

Standard library only, and no sockets: bytes come in, and what they mean comes out. The gateway,
which calls replicas many times a second, has a client of its own.
"""
