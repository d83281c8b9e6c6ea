"""Parts for all other packages: errors, files, locks, downloads, launchers, statistics."""
