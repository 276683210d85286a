"""Files that `coterie new` writes, working as they are."""
