"""gunicorn's settings, from the environment: workers, their kind, forked before the import?"""

import os
from pathlib import Path
from typing import Any

from answers import signals

bind = f"127.0.0.1:{os.environ['EBB_PORT']}"
workers = int(os.environ.get("DEVICE_WORKERS", "4"))
threads = int(os.environ.get("DEVICE_THREADS", "4"))
preload_app = os.environ.get("DEVICE_PRELOAD") == "yes"
timeout = 600
accesslog = None
worker_tmp_dir = os.environ["EBB_DIR"]

if os.environ.get("DEVICE_KIND", "gthread") == "gthread":
    worker_class = "gthread"
    wsgi_app = "service.wsgi:app"
else:
    worker_class = "uvicorn_worker.UvicornWorker"
    wsgi_app = "service.asgi:app"


def on_starting(_arbiter: Any) -> None:  # noqa: ANN401, gunicorn is not typed
    """Before the first fork: every process of the service answers the trial."""
    signals.answer_in(Path(os.environ["EBB_DIR"]))
