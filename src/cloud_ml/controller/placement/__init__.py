"""Who may run: capacity, quotas, slots and ports of tasks."""
