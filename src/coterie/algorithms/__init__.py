"""Algorithms: one file per paper. Each combines a sampler, a credit rule and a loss."""
