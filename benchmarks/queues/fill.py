"""`python fill.py MODULE JOBS`: enqueue jobs of a peer, in the environment of the peer."""

import asyncio
import inspect
import sys
from importlib import import_module

if __name__ == "__main__":
    filled = import_module(sys.argv[1]).fill(int(sys.argv[2]))
    if inspect.isawaitable(filled):
        asyncio.run(filled)
