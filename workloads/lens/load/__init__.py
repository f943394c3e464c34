"""The load of the case, a process of its own: what service backends ask of the feature store."""
