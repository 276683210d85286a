"""The memory of a team: storage, retrieval, checks and updates of notes."""
