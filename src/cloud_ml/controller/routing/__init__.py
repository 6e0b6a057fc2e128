"""How callers come to services and applications: ports, routes, readiness and scaling."""
