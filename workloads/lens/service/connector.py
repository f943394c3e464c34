"""The warehouse's client, as a database driver does it.

A result is a list of chunks, each fetched and decoded on a connector thread. A chunk is an Arrow
IPC stream, compressed; decoding makes a buffer of its own for the data, the offsets and the
validity bitmap of each column.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
import json
from typing import Any

import pyarrow as pa
import urllib3

from .settings import Settings


class WarehouseError(Exception):
    """The warehouse did not answer as it should."""


class Connector:
    """All access to the warehouse; one instance a process."""

    def __init__(self, settings: Settings) -> None:
        self._url = str(settings.warehouse_url).rstrip("/")
        self._http = urllib3.PoolManager(
            maxsize=settings.connector_threads, block=False, timeout=settings.warehouse_timeout_s, retries=False
        )
        self._threads = ThreadPoolExecutor(settings.connector_threads, "connector")

    def close(self) -> None:
        """Ends the threads and closes all connections."""
        self._threads.shutdown(cancel_futures=True)
        self._http.clear()

    async def ping(self) -> None:
        """Raises WarehouseError if the warehouse does not answer."""
        await self._run(self._get, "/health")

    async def customers(self) -> pa.Table:
        """The dimension that events are joined with."""
        return await self._run(self._fetch, "/customers")

    async def events(self, dataset: int, days: int) -> list[pa.Table]:
        """The events of some days, a table for each chunk of the result."""
        manifest = await self._run(self._manifest, f"/results/{dataset}?days={days}")
        chunks = [self._run(self._fetch, chunk) for chunk in manifest["chunks"]]
        return list(await asyncio.gather(*chunks))

    async def _run(self, function: Any, path: str) -> Any:  # noqa: ANN401, as the executor's own
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, path)

    def _get(self, path: str) -> bytes:
        try:
            answer = self._http.request("GET", self._url + path)
        except urllib3.exceptions.HTTPError as error:
            raise WarehouseError(f"{path}: {error}") from error
        if answer.status != 200:
            raise WarehouseError(f"{path}: status {answer.status}")
        return answer.data

    def _manifest(self, path: str) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(self._get(path))
        return manifest

    def _fetch(self, path: str) -> pa.Table:
        with pa.ipc.open_stream(self._get(path)) as reader:
            return reader.read_all()
