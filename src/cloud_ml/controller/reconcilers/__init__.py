"""One pass over a record, a file for each kind."""
