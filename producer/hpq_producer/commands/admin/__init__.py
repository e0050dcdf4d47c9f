"""Commands for maintenance and machines: archive, audit, data, doctor, join, user, worker."""
