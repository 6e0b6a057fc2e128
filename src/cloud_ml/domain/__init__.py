"""Pure decisions: data and a time in, data out. No input or output, no clock, no logger, no
await.
"""
