"""What an upload is turned into: recordings that are checked, put in order and summed up by sensor.

The same for both interfaces. Plain objects, as a service has them that grew from a script.
"""

from array import array
import base64
from collections import OrderedDict
from dataclasses import dataclass
import gzip
import json
import math
import operator
from pathlib import Path
import threading
from typing import Any


class InvalidUploadError(Exception):
    """The body is not a batch of readings."""


@dataclass(slots=True, frozen=True)
class Reading:
    sensor: str
    at_ms: int
    unit: str
    quality: int
    tags: tuple[str, ...]
    samples: "array[int]"


def parse(body: bytes) -> list[Reading]:
    """The readings of a batch, oldest first, each sensor and time once."""
    try:
        readings = {}
        for entry in json.loads(body)["readings"]:
            reading = Reading(
                sensor=str(entry["sensor"]),
                at_ms=int(entry["at_ms"]),
                unit=str(entry["unit"]),
                quality=int(entry["quality"]),
                tags=tuple(sorted(str(tag) for tag in entry["tags"])),
                samples=array("h", base64.b64decode(entry["samples"], validate=True)),
            )
            if not reading.samples:
                raise InvalidUploadError(f"{reading.sensor}: no samples")
            readings[reading.sensor, reading.at_ms] = reading
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidUploadError(f"{type(error).__name__}: {error}") from error
    return sorted(readings.values(), key=lambda reading: (reading.at_ms, reading.sensor))


def figures(reading: Reading) -> dict[str, Any]:
    """What is kept of a recording."""
    samples = reading.samples
    return {
        "sensor": reading.sensor,
        "at_ms": reading.at_ms,
        "unit": reading.unit,
        "quality": reading.quality,
        "tags": reading.tags,
        "mean": sum(samples) / len(samples),
        "rms": math.sqrt(sum(map(operator.mul, samples, samples)) / len(samples)),
        "peak": max(max(samples), -min(samples)),
    }


def summary(readings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last recording of each sensor, and how many there were."""
    by_sensor: dict[str, dict[str, Any]] = {}
    for of in readings:
        count = by_sensor.get(of["sensor"], {"count": 0})["count"] + 1
        by_sensor[of["sensor"]] = {"count": count, "at_ms": of["at_ms"], "rms": of["rms"], "peak": of["peak"]}
    return by_sensor


class Uploads:
    """Takes uploads: one instance a worker process, used by all its threads."""

    LATEST = 500
    """Devices whose last summary is kept."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._latest: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, device: str, body: bytes) -> dict[str, Any]:
        """Stores a batch and tells its summary; raises InvalidUploadError."""
        readings = parse(body)
        told = [figures(reading) for reading in readings]
        of_sensors = summary(told)
        normalised = [
            {**of, "samples": reading.samples[::4].tolist()} for of, reading in zip(told, readings, strict=True)
        ]
        text = json.dumps({"device": device, "readings": normalised})
        target = self._archive / f"{device}.json.gz"
        target.write_bytes(gzip.compress(text.encode(), compresslevel=1))
        with self._lock:
            self._latest[device] = of_sensors
            self._latest.move_to_end(device)
            if len(self._latest) > self.LATEST:
                self._latest.popitem(last=False)
        return {"device": device, "readings": len(readings), "sensors": of_sensors}

    def latest(self, device: str) -> dict[str, Any] | None:
        """The last summary of a device, as this worker knows it."""
        with self._lock:
            return self._latest.get(device)
