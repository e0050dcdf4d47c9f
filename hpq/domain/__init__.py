"""Define sweeps, trials, attempts, their states and their rules, without Redis."""
