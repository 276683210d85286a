"""A run on a Ray cluster: `runtime` places its parts, `actors` are they, `engine` and `learner` talk to them."""
