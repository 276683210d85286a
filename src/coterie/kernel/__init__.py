"""The core of one episode: environments, logs, replay, branches, requests to the engine, and groups of samples."""
