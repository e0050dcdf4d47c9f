"""Select sweeps and trials, and compute what views and files say of them."""
