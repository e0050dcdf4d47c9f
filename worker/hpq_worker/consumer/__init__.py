"""One worker process: wake on a ticket, claim, run, repeat."""
