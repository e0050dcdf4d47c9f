"""The producer side: the command line, from a sweep file to sets on the queue, and the tables."""
