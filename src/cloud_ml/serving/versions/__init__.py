"""The life of versions: which are wanted, which lie in folders, and the steps from one to the
other.
"""
