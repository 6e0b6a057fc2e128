"""The life of something that runs in attempts: a train job, or a replica of a model service."""
