"""Secrets, and what is masked where one may stand: variables, arguments, commands, diffs."""
