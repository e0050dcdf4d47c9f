"""The commands of `hpq`; the table in `hpq_producer.cli` has their modules."""
