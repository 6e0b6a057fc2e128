"""What runs differ in, and whether a job gives the same when it runs again."""
