"""Train jobs: the calls, the handle of a job, its log as one stream, and its outputs."""
