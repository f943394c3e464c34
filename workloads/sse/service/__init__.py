"""The service of the case: live and replayed events of long-running jobs, as Server-Sent Events."""
