"""What commands print of a sweep, a trial, or several."""
