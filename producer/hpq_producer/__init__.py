"""The producer side: the command line, from a sweep file to queued trials, tables and reports."""
