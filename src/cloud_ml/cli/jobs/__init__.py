"""``cloudml jobs``: the commands about train jobs, and what is read, sent and shown for them."""
