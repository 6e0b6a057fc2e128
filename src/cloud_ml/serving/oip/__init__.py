"""The Open Inference Protocol over REST, with its binary tensors:
https://github.com/kserve/open-inference-protocol.
"""
