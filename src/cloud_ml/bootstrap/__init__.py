"""The composition root: from settings to a server. The only place that knows which adapters exist.

``build`` puts the parts together and ``controllers`` what moves them; the rest of the modules make
single parts.
"""
