"""Queue the trials of a sweep file."""
