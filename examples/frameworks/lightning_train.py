"""Lightning: its own WandbLogger reports to hpq, without the wandb package."""

import argparse
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
lightning.seed_everything(int(os.environ.get("HPQ_SEED", "0")))


class Model(lightning.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], i: int) -> None:
        self.log("val/loss", self.training_step(batch, i))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])


inputs = torch.rand(64, 4)  # your data set
data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
trainer = lightning.Trainer(
    max_epochs=args.epochs, enable_progress_bar=False, log_every_n_steps=1,
    logger=WandbLogger(save_dir=os.environ.get("HPQ_OUT", ".")),
    callbacks=[
        ModelCheckpoint(monitor="val/loss"),  # the best model, an artifact
        ModelCheckpoint(os.environ.get("HPQ_CHECKPOINT_DIR", "."), save_last=True),
    ],
)  # fmt: skip
trainer.fit(Model(args.lr), data, data, ckpt_path="last")  # resumes another attempt
