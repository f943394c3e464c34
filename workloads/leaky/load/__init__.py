"""The load of the case: clients that run watches, always alike."""
