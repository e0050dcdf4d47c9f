"""What a command prints of a sweep, a trial, or several."""
