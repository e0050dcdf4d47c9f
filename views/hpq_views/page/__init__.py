"""Show sweeps in a browser: one file (`hpq report`), or live pages (`hpq dashboard`)."""
