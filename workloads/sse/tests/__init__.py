"""Tests of the case's service and load, against a real redis-server."""
