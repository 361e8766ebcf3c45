"""Small files: atomic reads and writes, schema checks, SQLite stores, and a cache of compiled objects."""
