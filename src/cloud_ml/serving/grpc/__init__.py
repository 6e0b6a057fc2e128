"""gRPC over the own HTTP/2: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md,
unary calls.
"""
