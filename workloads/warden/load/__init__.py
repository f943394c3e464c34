"""The load of the case: bots that scan a server, day after day."""
