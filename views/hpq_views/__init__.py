"""What looks at sweeps, and changes nothing: rows, texts, watch, pages, and why a sweep waits."""
