"""Engines: what answers. The protocol is `kernel/engine.py`."""
