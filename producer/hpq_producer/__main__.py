"""`python -m hpq_producer` is `hpq`."""

from hpq_producer.cli import main

main()
