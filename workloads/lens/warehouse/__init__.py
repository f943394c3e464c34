"""The warehouse of a trial, a process of its own: results as compressed Arrow IPC streams."""
