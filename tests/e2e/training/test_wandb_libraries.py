"""Libraries find hpq's stand-in for wandb: Lightning, Hugging Face's Trainer, Keras, and others.

They need a Python that has them; the variable ML_PYTHON names one, else these tests skip.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hpq.domain.trial import TrialState

PYTHON = os.environ.get("ML_PYTHON", sys.executable)

LIGHTNING = """
    import lightning as L, torch
    from lightning.pytorch.loggers import WandbLogger
    from torch.utils.data import DataLoader, TensorDataset
    from wandb.integration.lightning.fabric import WandbLogger as FabricLogger

    class Model(L.LightningModule):
        def __init__(self, lr):
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, 1)

        def step(self, batch):
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def training_step(self, batch, i):
            loss = self.step(batch)
            self.log("train/loss", loss)
            return loss

        def validation_step(self, batch, i):
            self.log("val/loss", self.step(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    logger = WandbLogger(project="p", log_model=True)
    model = Model(logger.experiment.config.x)
    logger.watch(model)
    L.Fabric(loggers=[FabricLogger()]).log("fabric/loss", 0.5, step=0)
    trainer = L.Trainer(max_epochs=2, logger=logger, accelerator="cpu", log_every_n_steps=1,
                        enable_progress_bar=False)
    trainer.fit(model, data, data)
"""
TRANSFORMERS = """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    import wandb

    wandb.init()
    torch.manual_seed(0)
    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=8, num_labels=2)
    inputs = torch.randint(5, 20, (16, 4))
    data = [{"input_ids": row, "labels": row[0] % 2} for row in inputs]
    args = TrainingArguments(output_dir="out", num_train_epochs=2, logging_steps=1, use_cpu=True,
                             eval_strategy="epoch", report_to=["wandb"], save_strategy="no",
                             per_device_train_batch_size=4, learning_rate=wandb.config.x)
    model = BertForSequenceClassification(config)
    Trainer(model=model, args=args, train_dataset=data, eval_dataset=data).train()
"""
KERAS = """
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import keras, numpy as np, wandb
    from wandb.keras import WandbCallback, WandbMetricsLogger

    wandb.init(config={"x": 5.0, "epochs": 2})
    x = np.random.default_rng(0).normal(size=(32, 4))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer=keras.optimizers.SGD(learning_rate=wandb.config.x))
    model.fit(x, x.sum(1), validation_data=(x, x.sum(1)), epochs=wandb.config.epochs, verbose=0,
              callbacks=[WandbMetricsLogger(), WandbCallback()])
"""
LIGHTGBM = """
    import lightgbm as lgb, numpy as np, wandb
    from wandb.integration.lightgbm import log_summary, wandb_callback

    wandb.init(config={"x": 0.1})
    x = np.random.default_rng(0).normal(size=(200, 4))
    data = lgb.Dataset(x, x.sum(1))
    params = {"learning_rate": wandb.config.x, "metric": "l2", "verbose": -1, "num_threads": 1}
    model = lgb.train(params, data, 5, valid_sets=[data], callbacks=[wandb_callback()])
    log_summary(model)
"""
XGBOOST = """
    import numpy as np, wandb, xgboost as xgb
    from wandb.integration.xgboost import WandbCallback

    wandb.init()
    x = np.random.default_rng(0).normal(size=(200, 4))
    data = xgb.DMatrix(x, x.sum(1))
    params = {"eta": wandb.config.x, "eval_metric": "rmse", "nthread": 1}
    xgb.train(params, data, 5, evals=[(data, "val")], early_stopping_rounds=3, verbose_eval=False,
              callbacks=[WandbCallback(log_model=True)])
    run = wandb.run
    assert run.summary["best_iteration"] == 4, run.summary
    assert run.summary["val-rmse"]["min"] == run.summary["best_score"], run.summary
    assert run.config.learner["gradient_booster"]["tree_train_param"]["eta"], run.config
"""
CATBOOST = """
    import numpy as np, wandb
    from catboost import CatBoostRegressor
    from wandb.catboost import WandbCallback, log_summary

    wandb.init()
    x = np.random.default_rng(0).normal(size=(200, 4))
    model = CatBoostRegressor(iterations=5, learning_rate=wandb.config.x, verbose=False,
                              allow_writing_files=False, thread_count=1)
    model.fit(x, x.sum(1), eval_set=(x, x.sum(1)), callbacks=[WandbCallback()])
    log_summary(model, save_model_checkpoint=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "script", "metric", "step"),
    [
        ("lightning", LIGHTNING, "val/loss", 7),  # trainer/global_step
        ("transformers", TRANSFORMERS, "eval/loss", 8),  # train/global_step
        ("keras", KERAS, "val_loss", 3),
        ("lightgbm", LIGHTGBM, "training_l2", 4),
        ("xgboost", XGBOOST, "val-rmse", 6),
        ("catboost", CATBOOST, "validation-RMSE", 4),
    ],
)
def test_a_librarys_integration_reports_to_hpq(
    lab, library: str, script: str, metric: str, step: int
) -> None:
    done = subprocess.run(
        [PYTHON, "-c", f"import importlib.util as u; u.find_spec('{library}').origin"],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip(f"{library} is not installed (ML_PYTHON names a Python that has it)")
    lab.write("train.py", script)
    sid = lab.enqueue(
        f"program: train.py\ncommand: ['{PYTHON}', '${{program}}']\nmethod: grid\n"
        f"metric: {{name: {metric}}}\nparameters: {{x: {{values: [0.01]}}}}\n"
    )
    lab.worker(HPQ_STORE=str(lab.folder / "store"), HF_HUB_OFFLINE="1")
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state == TrialState.FINISHED, lab.printed(sid)
    assert trial.objective is not None and trial.step == step, (trial, lab.printed(sid))
    files = trial.artifacts.files if trial.artifacts else []
    if library == "lightning":
        assert trial.metrics["fabric/loss"] == 0.5
        assert any(name.endswith("model.ckpt") for name in files)
    if library == "catboost":
        assert {"best_iteration", "learn-RMSE"} <= set(trial.metrics)
        assert any(name.endswith("/model") for name in files)
    if library == "keras":
        assert {"epoch/val_loss", "best_val_loss"} <= set(trial.metrics)
