"""Algorithms: one paper a file, a recipe of sampler, credit and loss."""
