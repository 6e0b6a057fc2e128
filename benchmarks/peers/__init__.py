"""Others who do what we do, in the same hour on the same machine: each in an environment that is
made here.
"""
