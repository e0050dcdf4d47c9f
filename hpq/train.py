"""Run one trial from the shell, without Redis: `python -m hpq.train mine:train --set lr=0.1`."""

from hpq_worker.train import main

if __name__ == "__main__":
    main()
