"""`hpq init`: write a first sweep file from a training script, which is read and never run."""
