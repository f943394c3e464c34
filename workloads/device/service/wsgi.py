"""The interface for threaded workers (gthread): Flask."""

import os
from pathlib import Path

from flask import Flask, Response, jsonify, request

from .readings import InvalidUploadError, Uploads

app = Flask("device")
uploads = Uploads(Path(os.environ["DEVICE_ARCHIVE"]))


@app.get("/health")
def health() -> Response:
    return jsonify(status="ok")


@app.post("/v1/devices/<device>/readings")
def upload(device: str) -> tuple[Response, int]:
    try:
        return jsonify(uploads.take(device, request.get_data(cache=False))), 201
    except InvalidUploadError as error:
        return jsonify(error=str(error)), 422


@app.get("/v1/devices/<device>")
def latest(device: str) -> tuple[Response, int]:
    """The last summary of a device."""
    figures = uploads.latest(device)
    return (jsonify(figures), 200) if figures else (jsonify(error="no such device"), 404)
