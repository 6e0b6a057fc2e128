"""Commands without a noun, such as ``cloudml logs NAME``, and how they find what a name means."""
