"""The shipped trainers, `cifar10`, `mnist` and `digits`: modules with a `train`.

The runner imports the module of the trainer it runs, and with it torch; nobody else does. The
modules `context`, `formats`, `sources` and `cache` stay without torch.
"""
