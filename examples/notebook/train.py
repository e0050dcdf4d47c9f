"""A stand-in for training: the loss falls with each epoch, and lr=0.1 falls furthest."""

import argparse
import math

import hpq

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--width", type=int, required=True)
args = parser.parse_args()

distance = abs(math.log10(args.lr) + 1)
for epoch in range(1, 11):
    loss = 0.1 + distance + 4 / args.width + math.exp(-epoch / 3)
    hpq.report({"loss": loss, "accuracy": 1 / (1 + loss)}, step=epoch)
