"""``tensorflow.examples.tutorials``: handwritten digits only."""
