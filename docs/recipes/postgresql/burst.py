"""Eight sessions sort and aggregate what they generate, and stay connected."""

import os
import subprocess
import sys

QUERY = """
SET work_mem = '64MB';
SELECT count(*), max(length(doc)) FROM (
    SELECT k, string_agg(v, ',' ORDER BY v) AS doc
    FROM (SELECT i % 5000 AS k, md5(i::text) AS v FROM generate_series(1, 300000) AS i) AS orders GROUP BY k
) AS grouped;
SELECT length(json_agg(row_to_json(t))::text) FROM (SELECT i, md5(i::text) AS note FROM generate_series(1, 100000) AS i) AS t;
"""
psql = ["psql", "-h", f"{os.environ['SCRATCH']}/socket", "-p", os.environ["PORT"], "-U", "postgres", "-qtA"]
sessions = [subprocess.Popen(psql, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
for session in sessions:
    session.stdin.write(f"{QUERY}\\echo over\n")
    session.stdin.flush()
for session in sessions:
    while session.stdout.readline() not in ("over\n", ""):
        pass
print("over", flush=True)
sys.stdin.read()
for session in sessions:
    session.communicate()
