"""The protocol of a gRPC call as the SDK speaks it: HTTP/2 for one request and its answer.

Standard library only, and no sockets: bytes come in, and what they mean comes out. The gateway,
which calls replicas many times a second, has a client of its own.
"""
