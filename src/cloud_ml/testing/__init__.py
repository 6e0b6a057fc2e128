"""Contracts, builders and fakes: public, for us and for authors of plugins."""
