"""Stands in for a training: its loss is lowest near lr=0.01 and momentum=0.9, and is noisy."""

import argparse
import math
import os
import random

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--momentum", type=float)
args = parser.parse_args()

noise = random.Random(f"{os.environ['HPQ_SEED']} {args.lr} {args.momentum}")
final = (math.log10(args.lr) + 2) ** 2 + (args.momentum - 0.9) ** 2
for epoch in range(5):
    print(f"loss={final + 1 / (epoch + 1) + noise.gauss(0, 0.02)}")
