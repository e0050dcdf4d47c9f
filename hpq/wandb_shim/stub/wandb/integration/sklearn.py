"""`wandb.sklearn`: functions that draw charts in W&B; here they do nothing, and say so once."""

from __future__ import annotations

from typing import Any

from .._transport import log_once


def _plot(*args: Any, **kwargs: Any) -> None:
    log_once("wandb.sklearn: hpq draws no charts; log numbers with wandb.log")


plot_classifier = plot_regressor = plot_clusterer = plot_roc = plot_precision_recall = _plot
plot_confusion_matrix = plot_feature_importances = plot_class_proportions = _plot
plot_calibration_curve = plot_summary_metrics = plot_learning_curve = _plot
plot_outlier_candidates = plot_residuals = plot_elbow_curve = plot_silhouette = _plot
