"""TensorFlow Serving's REST interface: https://www.tensorflow.org/tfx/serving/api_rest."""
