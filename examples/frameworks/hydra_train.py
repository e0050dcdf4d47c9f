"""Hydra: the sweep file names the overrides; outputs become artifacts of the trial."""

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path=".", config_name="hydra_config")
def main(config: DictConfig) -> None:
    value, speed = 1.0, 0.0
    for step in range(config.steps):  # your training
        speed = config.optimizer.momentum * speed - config.optimizer.lr * value
        value += speed
        print(f"loss={value**2} step={step}")


main()
