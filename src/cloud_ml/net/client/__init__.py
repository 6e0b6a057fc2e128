"""The protocols of a client: an answer of HTTP/1.1, and a gRPC call, which is one request of HTTP/2.

Standard library only, and no sockets: bytes come in, and what they mean comes out. The gateway,
which calls replicas many times a second, has a client of its own.
"""
