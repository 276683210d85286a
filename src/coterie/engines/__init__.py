"""Engines, which sample replies. Their base class is in `kernel/engine.py`."""
