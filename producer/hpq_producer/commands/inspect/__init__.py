"""Commands that read: watch, ls, show, logs, summary, best, results and more."""
