"""Cloud ML, an all-in-one machine learning platform. This module holds the version and nothing
else.
"""

__version__ = "0.1.0"
