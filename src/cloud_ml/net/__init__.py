"""Protocols of the network for the model server and the gateway: HTTP/1.1, HTTP/2, and what
callers may cost.
"""
