"""Results that are kept: a store of reports, what figures became from run to run, formats of other tools."""
