"""Parts for all other packages: errors, files, locks, downloads, logs, progress, statistics."""
