"""Kinds of what event files have beside scalars."""

HISTOGRAM, IMAGE, AUDIO, TEXT, OTHER = "histogram", "image", "audio", "text", "other"
KINDS = (HISTOGRAM, IMAGE, AUDIO, TEXT, OTHER)
UNKNOWN = ""
"""Of a tensor that does not say what it is: programs may say so with the first one of a tag only."""
