"""A typical training script: argparse options in, `val_loss=…` lines out.

Logistic regression on a small generated data set (two noisy rings, polynomial features) by SGD or
Adam, in plain Python and deterministic: the result depends only on the two options.
"""

import argparse
import math
import random

POINTS, EPOCHS, BATCH = 4000, 50, 20


def points(rng):
    """Return points of two rings as polynomial features up to degree 3, each with its label."""
    out = []
    for i in range(POINTS):
        label, angle = i % 2, rng.uniform(0, 2 * math.pi)
        radius = rng.gauss(0.6 + 0.5 * label, 0.2)
        x, y = radius * math.cos(angle), radius * math.sin(angle)
        out.append(([1.0, x, y, x * x, x * y, y * y, x**3, x * x * y, x * y * y, y**3], label))
    return out


def predict(weights, features):
    """Return the probability that the label is 1."""
    z = sum(w * f for w, f in zip(weights, features, strict=True))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, z))))


def loss(weights, data):
    """Return the mean cross entropy."""
    total = 0.0
    for features, label in data:
        p = predict(weights, features)
        total -= math.log(max(p if label else 1 - p, 1e-12))
    return total / len(data)


def gradient(weights, batch):
    """Return the gradient of the batch's mean loss."""
    total = [0.0] * len(weights)
    for features, label in batch:
        error = predict(weights, features) - label
        for i, feature in enumerate(features):
            total[i] += error * feature / len(batch)
    return total


def sgd(learning_rate):
    """Return a step of gradient descent with momentum 0.9."""
    velocity = None

    def step(weights, grads):
        nonlocal velocity
        velocity = [0.9 * v + g for v, g in zip(velocity or [0.0] * len(grads), grads, strict=True)]
        return [w - learning_rate * v for w, v in zip(weights, velocity, strict=True)]

    return step


def adam(learning_rate):
    """Return a step of Adam with its usual constants."""
    first, second, count = None, None, 0

    def step(weights, grads):
        nonlocal first, second, count
        count += 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first or [0.0] * len(grads), grads, strict=True)]
        second = [
            0.999 * v + 0.001 * g * g
            for v, g in zip(second or [0.0] * len(grads), grads, strict=True)
        ]
        mean, spread = 1 - 0.9**count, 1 - 0.999**count
        return [
            w - learning_rate * (m / mean) / (math.sqrt(v / spread) + 1e-8)
            for w, m, v in zip(weights, first, second, strict=True)
        ]

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    args = parser.parse_args()
    rng = random.Random(0)
    data = points(rng)
    train, val = data[: POINTS * 3 // 4], data[POINTS * 3 // 4 :]
    weights = [0.0] * len(train[0][0])
    step = {"adam": adam, "sgd": sgd}[args.optimizer](args.learning_rate)
    for epoch in range(1, EPOCHS + 1):
        rng.shuffle(train)
        for start in range(0, len(train), BATCH):
            weights = step(weights, gradient(weights, train[start : start + BATCH]))
        print(f"epoch={epoch}")
        print(f"train_loss={loss(weights, train):.6f}")
        print(f"val_loss={loss(weights, val):.6f}", flush=True)


if __name__ == "__main__":
    main()
