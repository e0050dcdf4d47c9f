"""`hpq connect`: forward a local port to the cluster's Redis."""
