"""The built-in trainers `cifar10`, `mnist` and `digits`; only the runner imports them."""
