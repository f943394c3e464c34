"""A service that watches messages for clients, and leaks: Python objects, or a library's memory."""
