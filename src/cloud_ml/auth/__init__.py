"""Who is asking: request signatures, shared by the SDK and the server, and tokens."""
