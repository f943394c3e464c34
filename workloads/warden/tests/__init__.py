"""Tests of the case's load; those of the service are in src/."""
