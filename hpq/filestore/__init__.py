"""Files of attempts in a directory or behind an fsspec URL."""
