"""The worker process that owns the device, and the messages between it and its parent."""
