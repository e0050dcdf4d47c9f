"""The producer side: the command line, from a sweep file to queued trials, tables and reports."""

from hpq.process import end_on_sigterm

end_on_sigterm()  # before anything that takes time to import
