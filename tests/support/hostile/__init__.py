"""Attacks of a hostile job: what they are, and the scene in which they are tried."""
