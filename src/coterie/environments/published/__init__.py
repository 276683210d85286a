"""Published data sets: the sources of rows, and which of them are for training and for testing."""
