"""Engines: what answers. `base.py` is the protocol."""
