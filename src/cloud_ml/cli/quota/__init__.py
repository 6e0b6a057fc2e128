"""``cloudml quota``: limits, what is used of them, and applications for more."""
