"""scikit-learn: cross-validate gradient boosting on the digits data set."""

import argparse
import os

from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--max_depth", type=int, default=4)
parser.add_argument("--max_iter", type=int, default=50)
parser.add_argument("--images", type=int, default=1797)
args = parser.parse_args()

seed = int(os.environ.get("HPQ_SEED", "0"))
inputs, labels = load_digits(return_X_y=True)
model = HistGradientBoostingClassifier(
    learning_rate=args.learning_rate, max_depth=args.max_depth, max_iter=args.max_iter
)
folds = StratifiedKFold(3, shuffle=True, random_state=seed)
scores = cross_val_score(model, inputs[: args.images], labels[: args.images], cv=folds)
print(f"accuracy={scores.mean()} std={scores.std()}")
