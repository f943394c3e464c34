"""The load of the case, a process of its own: what workers write and what subscribers read."""
