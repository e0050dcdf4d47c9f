"""`hpq scale` and `hpq drain`: change how many worker pods run."""
