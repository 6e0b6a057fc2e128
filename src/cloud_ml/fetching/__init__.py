"""Fetches what strangers name by a URL, in a process of its own that knows nothing.

The server holds the keys and the database, and stands inside of the operator's network. So it never
follows a tenant's URL itself: it starts ``program`` with an empty environment, bounded in time,
size and memory, as another user where it can. The program connects to addresses that ``addresses``
lets pass, and to no others. Standard library only, nothing else of ours.
"""
