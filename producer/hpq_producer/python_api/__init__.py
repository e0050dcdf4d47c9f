"""The Python API: what `import hpq` offers beside the commands, on the same readers and writers."""
