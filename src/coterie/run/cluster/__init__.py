"""A run on a Ray cluster: `runtime` places its parts, which are `actors`; `engine` and `learner` talk to them."""
