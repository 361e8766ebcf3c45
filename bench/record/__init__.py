"""Records: benchmarks of webnorm and other libraries in turn on one machine, and their files."""
