"""Small files: read and written whole, declared forms, SQLite stores, the cache of compiled things."""
