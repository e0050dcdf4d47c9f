"""Execute one attempt of a trial."""
