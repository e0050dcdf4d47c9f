"""Keras: a callback prints the logs of each epoch."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # before the import

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

keras.utils.set_random_seed(int(os.environ.get("HPQ_SEED", "0")))


def report(epoch: int, logs: dict[str, float]) -> None:
    print(*(f"{name}={value}" for name, value in logs.items()), flush=True)


inputs = np.random.default_rng(0).normal(size=(256, 4))  # your data set
model = keras.Sequential([keras.layers.Dense(args.width, "relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(args.lr), "mse")
model.fit(
    inputs, inputs.sum(1), validation_split=0.25, epochs=args.epochs, verbose=0,
    callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=report)],
)  # fmt: skip
