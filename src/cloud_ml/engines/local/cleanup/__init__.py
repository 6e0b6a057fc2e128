"""What outlives its supervisor or its server: which server owns a thing of the machine, what
has no owner any more, and how processes, tables, links and control groups are removed.
"""
