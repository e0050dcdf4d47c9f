"""Read a sweep file into a checked SweepSpec; nothing here uses Redis."""
