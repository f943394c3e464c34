"""The service of the case: a feature store before a warehouse, results as Arrow buffers."""
