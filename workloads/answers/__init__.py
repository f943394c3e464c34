"""What the workloads written in Python answer to a trial, each in one place for all of them.

memory.py, routes.py and settings.py are the service's side, summary.py is the load's.
ci/python-env.sh puts this folder's parent on the path of every workload's environment.
"""
