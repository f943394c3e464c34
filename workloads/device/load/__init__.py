"""The load of the case, a process of its own: devices that upload what they have gathered."""
