"""``cloudml models``: the commands about model services, and what is shown of them."""
