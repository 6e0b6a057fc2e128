"""What the server bears: many callers, a greedy one, many followers, much output, and clients
that misbehave.
"""
