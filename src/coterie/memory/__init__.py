"""What a team remembers: kept, recalled, cleaned and evolved."""
