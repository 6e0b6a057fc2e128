"""Tensors and requests to bytes and back, a file for each form."""
