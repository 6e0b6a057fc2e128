"""What the client is made of: transport, retries, packaging, following of logs."""
