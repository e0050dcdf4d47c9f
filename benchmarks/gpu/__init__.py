"""The CIFAR10 trainer on a GPU: `python -m benchmarks.gpu`, one command, ten minutes, no network.

Needs torch with CUDA, NumPy and Pillow; neither Redis nor rq. `--small` runs the same on a CPU, to
see that it runs: its figures mean nothing.
"""
