"""Teams that write code."""
