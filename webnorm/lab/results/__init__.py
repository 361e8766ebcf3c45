"""Results of `check` and `bench`: their statistics, order, tables and files."""
