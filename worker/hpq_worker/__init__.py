"""The worker: a supervisor, one consumer process per slot, and the runners that train.

Only runners import torch. No module imports hpq_producer.
"""
