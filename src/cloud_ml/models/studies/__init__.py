"""Studies and their trials, what is read out of them, and the documents of other tools."""
