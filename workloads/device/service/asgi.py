"""The interface for event-loop workers (uvicorn): FastAPI; the work is done on its threads."""

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, status
from fastapi.concurrency import run_in_threadpool

from .readings import InvalidUploadError, Uploads

app = FastAPI(title="Device readings")
uploads = Uploads(Path(os.environ["DEVICE_ARCHIVE"]))


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/devices/{device}/readings", status_code=status.HTTP_201_CREATED)
async def upload(device: str, request: Request) -> dict[str, Any]:
    try:
        return await run_in_threadpool(uploads.take, device, await request.body())
    except InvalidUploadError as error:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, str(error)) from error


@app.get("/v1/devices/{device}")
async def latest(device: str) -> dict[str, Any]:
    """The last summary of a device."""
    figures = uploads.latest(device)
    if figures is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such device")
    return figures
