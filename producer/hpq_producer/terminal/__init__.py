"""Draw text, tables and charts on a terminal."""
