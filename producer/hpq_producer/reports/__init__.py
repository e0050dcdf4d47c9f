"""What people see of a sweep: frames, tables, bars, lines and JSON, drawn from snapshots."""
