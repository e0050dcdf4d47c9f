"""From a sweep file to a checked spec and its sets. Pure: nothing here knows Redis."""
