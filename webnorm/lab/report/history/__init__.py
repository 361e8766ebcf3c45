"""History of results: a store of reports, series and regressions over runs, formats of other tools."""
