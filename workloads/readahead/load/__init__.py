"""The load of the case: it makes the store, and reads the .bed view as a genetics tool would."""
