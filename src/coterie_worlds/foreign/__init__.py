"""Games of other libraries, played by a team or by its roles against each other; one file a library."""
