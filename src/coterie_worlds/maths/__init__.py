"""Mathematics: a task with reasoners and tool users, and the comparison of answers."""
