"""What runs differ in, and what of it has likely changed a metric. Pure."""
