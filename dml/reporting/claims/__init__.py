"""First pilots on own runs: results per seed, a page per experiment, pictures of settings."""
