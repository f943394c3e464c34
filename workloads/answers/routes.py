"""The routes by which a FastAPI service answers a trial's questions about its memory.

None is asked in production; `[trim]`, `[live]` and `ask` of a workload name them.
"""

import gc
from typing import Annotated

from fastapi import APIRouter, HTTPException, status
from pydantic import BaseModel, Field

from . import memory

router = APIRouter(prefix="/debug")


class Trimmed(BaseModel):
    released: bool
    rss_before_bytes: Annotated[int, Field(ge=0)]
    rss_after_bytes: Annotated[int, Field(ge=0)]


class Live(BaseModel):
    """Bytes in use, and by which count."""

    live_bytes: int
    malloc_bytes: int
    malloc_method: str
    object_allocator_bytes: int


@router.post("/trim")
async def trim() -> Trimmed:
    """Calls malloc_trim(0) of the allocator in charge."""
    before = memory.resident_bytes()
    released = memory.trim()
    return Trimmed(released=released, rss_before_bytes=before, rss_after_bytes=memory.resident_bytes())


@router.post("/gc")
async def collect() -> dict[str, int]:
    """Collects unreachable cycles, so that garbage does not count as memory that is kept."""
    return {"unreachable": gc.collect()}


@router.get("/live")
async def live() -> Live:
    """Tells the bytes in use; 501 if the allocator does not count them."""
    try:
        found = memory.in_use()
    except memory.NotTold as error:
        raise HTTPException(status.HTTP_501_NOT_IMPLEMENTED, str(error)) from error
    return Live(
        live_bytes=found.live_bytes,
        malloc_bytes=found.malloc_bytes,
        malloc_method=found.malloc_method,
        object_allocator_bytes=found.object_allocator_bytes,
    )
