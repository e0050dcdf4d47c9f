"""The worker side: a supervisor, one parent process a slot, and the runner that trains.

Parents import neither torch nor CUDA; only runners do. Nothing here imports producer.
"""
