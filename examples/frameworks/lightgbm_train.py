"""LightGBM: a callback reports the loss after each tree, so hpq can prune the trial."""

import argparse
import os

import lightgbm
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--num_leaves", type=int, default=31)
parser.add_argument("--trees", type=int, default=50)
args = parser.parse_args()
seed = int(os.environ.get("HPQ_SEED", "0"))


def report(env: lightgbm.callback.CallbackEnv) -> None:
    _, _, loss, _ = env.evaluation_result_list[0]
    print(f"val_loss={loss}", flush=True)


inputs, labels = load_breast_cancer(return_X_y=True)
train_x, val_x, train_y, val_y = train_test_split(inputs, labels, random_state=seed)
model = lightgbm.LGBMClassifier(
    learning_rate=args.learning_rate,
    num_leaves=args.num_leaves,
    n_estimators=args.trees,
    verbose=-1,
)
model.fit(train_x, train_y, eval_set=[(val_x, val_y)], callbacks=[report])
