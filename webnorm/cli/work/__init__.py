"""Work in a worker process or on a cluster: progress, outputs, exit statuses."""
