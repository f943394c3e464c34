"""Tests of the service and its load."""
