"""What is done with a team: train it, play it on held-out tasks, change it, give it a start."""
