"""The messages that clients send and receive, and how an event looks on the wire.

`Event` is a plain object rather than a pydantic model: events are written by our own workers, are
validated where they enter, and a replay decodes thousands of them.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

RunId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
StreamId = Annotated[str, StringConstraints(pattern=r"^\d{1,16}(-\d{1,16})?$")]

COMPLETED = "run.completed"
"""The type of the last event of a run; its followers stop after it."""


class RunState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"


class NewRun(BaseModel):
    """The request that registers a run before its worker writes events."""

    model_config = ConfigDict(extra="forbid")

    run_id: RunId
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    owner: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    labels: dict[str, str] = Field(default_factory=dict, max_length=32)


class Run(NewRun):
    """A run as the service tells it."""

    state: RunState
    created_at: datetime


@dataclass(slots=True, frozen=True)
class Event:
    """One entry of a run's stream, decoded."""

    stream_id: str
    kind: str
    payload: dict[str, Any]


def decode(stream_id: bytes, fields: dict[bytes, bytes]) -> Event:
    """Decodes what Redis holds for one entry."""
    return Event(
        stream_id=stream_id.decode("ascii"), kind=fields[b"type"].decode("utf-8"), payload=json.loads(fields[b"data"])
    )


def encode(event: Event) -> str:
    """One event as a frame of the event-stream format."""
    data = json.dumps(event.payload, separators=(",", ":"), ensure_ascii=False)
    return f"id: {event.stream_id}\nevent: {event.kind}\ndata: {data}\n\n"
