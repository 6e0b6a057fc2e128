"""The part that runs inside a tenant's sandbox: unpacks a trainer, runs its build, looks at its
code.

Started by ``trainer.py`` with the platform's interpreter and nothing but this package on its path.
What it leaves is the tenant's word and is checked as such by the caller.
"""
