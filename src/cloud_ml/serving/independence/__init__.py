"""Whether the rows of a model are independent of each other, so that calls of several clients
may run together.
"""
