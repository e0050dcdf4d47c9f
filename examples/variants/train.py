"""A training whose code the example changes."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
loss = 1.0
for _ in range(10):
    loss = loss * 0.9 + lr * 0.01
    print(f"loss={loss}")
