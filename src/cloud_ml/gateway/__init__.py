"""The gateway in front of model services: one resident process that outlives the server.

It takes gRPC and HTTP/1.1 on a port of each service, knows who may call, and hands each call to a
replica. What it knows comes from the server, over a socket in the data folder (``control.py``,
``link.py``); while there is no server it goes on with what it was told last. It stores nothing and
never sees a secret.
"""
