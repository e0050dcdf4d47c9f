"""How good the sets are that a search finds, and what each costs."""
