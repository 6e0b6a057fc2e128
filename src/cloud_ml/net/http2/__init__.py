"""A small HTTP/2 for unary calls: RFC 9113 as far as gRPC clients use it, with bounds on
everything.

grpcio in any mode costs a Python server 100 µs and more for a call; this costs 5. What it leaves
out, it refuses:
push, priorities, CONNECT, server-sent trailers without a call.
"""
