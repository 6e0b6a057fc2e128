"""The parts of ``tensorflow.examples`` that old tutorials import."""
