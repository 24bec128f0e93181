"""Studies in a database, and their files on disk."""
