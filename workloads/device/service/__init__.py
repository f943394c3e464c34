"""The service of the case: devices upload their readings as JSON; several forked workers."""
