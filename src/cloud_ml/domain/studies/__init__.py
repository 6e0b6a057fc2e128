"""Studies: searches for the arguments with which a train job does best. Pure.

A study runs *trials*, which are train jobs, and knows of each its parameters and how it ended.
"""
