"""`python -m producer` is `hpq`."""

from producer.cli import main

main()
