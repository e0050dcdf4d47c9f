"""The worker: a supervisor, one consumer process per slot, and the runners that train.

Only runners import torch. No module imports hpq_producer.
"""

from hpq.process import end_on_sigterm

end_on_sigterm()  # before anything that takes time to import
