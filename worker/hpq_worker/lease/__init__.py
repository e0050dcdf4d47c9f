"""Keep a claim alive, report, reap, and survive a Redis outage."""
