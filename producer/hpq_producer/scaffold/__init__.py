"""`hpq init`: from a training script, read and never run, to a first sweep file."""
