"""Others' servers, each a program for its own environment:
``python on_x.py <model.onnx> <http port> <grpc port>``.
"""
