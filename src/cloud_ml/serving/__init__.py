"""The model server: loads trained models and answers over gRPC and HTTP. Usable without the
platform.
"""
