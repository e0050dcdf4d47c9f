"""The worker side: a supervisor, one parent process a slot, and the runner that trains.

Parents import neither torch nor CUDA; only runners do. Nothing here imports producer.
"""

from hpq.process import end_on_sigterm

end_on_sigterm()  # before anything that takes time to import
