"""``tensorflow.examples.tutorials.mnist``: reads the files of MNIST, and builds the model of the
tutorial.
"""

from tensorflow.examples.tutorials.mnist import input_data, mnist

__all__ = ["input_data", "mnist"]
