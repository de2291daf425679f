#!/usr/bin/env python3
"""Writes tests/train/metrics.def: what scikit-learn and PyTorch compute for the data sets of test_metrics.c.

usage: tests/train/make_metrics.py >tests/train/metrics.def     (needs numpy, scikit-learn and torch)

Both programs make the scores and labels of 1000 samples with the same integer arithmetic, so that only values are stored.
scikit-learn defines accuracy, F1, Jaccard, ROC AUC, confusion matrix, MSE, MAE and R2, and PyTorch the cross entropy. Where
they refuse a data set, the definitions of docs/training.md are computed here with numpy:
  NaN scores       the class with the highest score that is not NaN, none if all are; a class that is none is a wrong one
  ties             the first class wins, in accuracy (numpy.argmax) as in top-K (a stable sort)
  AUC              the mean over the classes or columns that have both kinds of samples; NaN if there are none
"""
import math

import numpy as np
import torch
from noise import noise
from sklearn import metrics as sk

N, NONE = 1000, -1


def class_data(classes, inner, labels, levels):
    """Scores [N, inner, classes] in steps of 1/levels, and labels [N, inner] of `labels` (a list, drawn evenly)."""
    y = np.array(labels)[(noise((N, inner), 1) * len(labels)).astype(int)]
    x = np.floor(4 * noise((N, inner, classes), 2) * levels) / levels
    return x + 1.5 * (np.arange(classes) == y[..., None]), y


def softmax(x):
    """Over the last axis. Rows that are permutations of one another get equal sums, so that ties stay ties."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / np.apply_along_axis(math.fsum, -1, e)[..., None]


def predict(x):
    none = np.isnan(x).all(-1)
    return np.where(none, NONE, np.where(np.isnan(x), -np.inf, x).argmax(-1))


def top(x, y, k):
    order = np.argsort(np.where(np.isnan(x), np.inf, -x), axis=-1, kind="stable")[..., :k]
    own = np.take_along_axis(x, y[..., None], -1)[..., 0]
    return ((order == y[..., None]).any(-1) & ~np.isnan(own)).mean()


def area(yes, scores):
    return sk.roc_auc_score(yes, scores) if 0 < yes.sum() < len(yes) else None


def mean_area(columns):
    areas = [a for a in (area(yes, s) for yes, s in columns) if a is not None]
    return np.mean(areas) if areas else np.nan


def of_classes(x, y, probabilities=False):
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1)
    classes, predicted = x.shape[-1], predict(x)
    clean = not np.isnan(x).any()
    seen = sorted((set(y) | set(predicted)) - {NONE})
    same = {"labels": seen, "zero_division": 0}
    p = x if probabilities else softmax(x)
    log_p = torch.log(torch.tensor(p))
    entropy = torch.nn.functional.nll_loss(log_p, torch.tensor(y)).item() if clean else np.nan
    if not clean:
        auc = np.nan
    elif classes == 2:
        auc = mean_area([(y == 1, p[:, 1])])
    else:
        auc = mean_area([(y == c, p[:, c]) for c in range(classes)])
        if len(set(y)) == classes and np.allclose(p.sum(-1), 1):
            assert abs(auc - sk.roc_auc_score(y, p, multi_class="ovr")) < 1e-12
    values = {
        "accuracy": sk.accuracy_score(y, predicted),
        "perplexity": np.exp(entropy),
        "f1_macro": sk.f1_score(y, predicted, average="macro", **same),
        "f1_micro": sk.f1_score(y, predicted, average="micro", **same),
        "auc": auc,
    }
    if classes > 2:
        values["top1"], values["top2"] = top(x, y, 1), top(x, y, 2)
        if len(np.unique(x)) == x.size and len(set(y)) == classes:
            assert values["top2"] == sk.top_k_accuracy_score(y, x, k=2)
    matrix = sk.confusion_matrix(y[predicted >= 0], predicted[predicted >= 0], labels=range(classes))
    return values, matrix, sk.jaccard_score(y, predicted, average="macro", **same)


def of_columns(x, y, threshold):
    """x and y [N, columns, inner]; yes is y = 1."""
    x, y = (np.moveaxis(a, 1, -1).reshape(-1, a.shape[1]) for a in (x, y))
    predicted = (x > threshold).astype(int)
    if x.shape[1] == 1:
        x, y, predicted, average = x[:, 0], y[:, 0], predicted[:, 0], {"macro": "binary", "micro": "binary"}
    else:
        average = {"macro": "macro", "micro": "micro"}
    columns = [(y, x)] if x.ndim == 1 else [(y[:, c], x[:, c]) for c in range(x.shape[1])]
    return {
        "accuracy": (predicted == y).mean(),
        "f1_macro": sk.f1_score(y, predicted, average=average["macro"], zero_division=0),
        "f1_micro": sk.f1_score(y, predicted, average=average["micro"], zero_division=0),
        "iou": sk.jaccard_score(y, predicted, average=average["macro"], zero_division=0),
        "auc": mean_area(columns),
    }, sk.confusion_matrix(y.reshape(-1), predicted.reshape(-1), labels=[0, 1])


def of_values(x, y):
    return {
        "mse": sk.mean_squared_error(y, x),
        "mae": sk.mean_absolute_error(y, x),
        "r2": sk.r2_score(y, x),
    }


def write(name, values, matrix=None):
    line = ""
    for key, value in values.items():
        row = f"VALUE({name}, {key}, {'NAN' if np.isnan(value) else repr(float(value))})"
        if line and len(line) + len(row) >= 132:
            print(line)
            line = ""
        line += " " * bool(line) + row
    print(line)
    if matrix is not None:
        print(f"MATRIX({name}, {', '.join(str(v) for v in np.array(matrix).reshape(-1))})")


def write_classes(name, x, y, probabilities=False, maps=False):
    values, matrix, iou = of_classes(x, y, probabilities)
    if maps:
        values["iou"] = iou
    write(name, values, matrix)


def main():
    print("/* Written by make_metrics.py: VALUE(case, metric, value), MATRIX(case, confusion matrix by rows). */")
    write_classes("classes", *class_data(5, 1, range(5), 2**18))
    write_classes("two", *class_data(2, 1, range(2), 2**18))
    write_classes("ties", *class_data(5, 1, range(5), 2))
    x, y = class_data(5, 1, [0, 1, 3], 2**18)
    x[..., 4] = -100
    write_classes("absent", x, y)
    write_classes("one", *class_data(5, 1, [2], 2**18))
    x, y = class_data(5, 1, range(5), 2**18)
    x[::10, 0, 1] = np.nan
    x[5::50] = np.nan
    write_classes("nan", x, y)
    x, y = class_data(4, 1, range(4), 2**18)
    write_classes("probabilities", softmax(x), y, True)
    write_classes("maps", *class_data(4, 6, range(4), 2**18), maps=True)
    x, y = class_data(4, 6, range(4), 2**18)
    kept = y != 3
    values, matrix, iou = of_classes(x[kept], y[kept])
    write("tokens", dict(values, iou=iou), matrix)
    for name, columns, inner, levels in ("yes", 1, 1, 2**18), ("labels", 4, 1, 4), ("masks", 2, 6, 2**18):
        y = (noise((N, columns, inner), 3) < 0.4).astype(float)
        if name == "labels":
            y[:, 3] = 0
        x = np.floor(4 * noise((N, columns, inner), 4) * levels) / levels - 2.5 + y
        if name == "labels":
            x[:, 3] -= 8
        write(name, *of_columns(x, y, 0))
    y = np.floor(8 * noise((N, 3), 5) * 2**10) / 2**10
    x = y + noise((N, 3), 6) - 0.5
    y[:, 2] = 2.5
    write("values", of_values(x, y))


main()
