"""The private server under HPQ_HOME: found, started, kept and stopped by locks."""
