"""One episode: how it is written, logged, driven, branched, asked for and grouped."""
