"""Gangs on this machine: a spawner and supervisors that outlive the server, bubblewrap, cgroups.

Everything but ``engine`` runs in those small processes and imports the standard library only.
"""
