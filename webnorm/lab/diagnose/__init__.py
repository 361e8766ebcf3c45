"""Why a wrong output may be wrong: error maps, patterns, hints and traces."""
