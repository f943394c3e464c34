"""Tests of the case's service and load."""
