"""Model services: deploying, the handle of a service, and requests to models over HTTP and gRPC."""
