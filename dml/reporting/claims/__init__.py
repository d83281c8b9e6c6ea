"""Papers' claims tested on own runs: results per seed, paired tests, a page per experiment."""
