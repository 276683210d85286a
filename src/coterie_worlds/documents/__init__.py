"""Documents: two roles that see different pages about real countries, and the facts on them."""
