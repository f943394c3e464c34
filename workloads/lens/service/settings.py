"""Settings of the service, read once from the environment (prefix LENS_)."""

from typing import ClassVar

from pydantic import Field, HttpUrl

from answers.settings import EnvironmentSettings


class Settings(EnvironmentSettings):
    """What an operator of the service sets."""

    prefix: ClassVar[str] = "LENS_"

    warehouse_url: HttpUrl = Field(default=HttpUrl("http://127.0.0.1:8100"))
    warehouse_timeout_s: float = Field(default=120.0, gt=0.0)
    connector_threads: int = Field(
        default=8, ge=1, le=256, description="Threads that fetch and decode chunks of results."
    )
    query_threads: int = Field(default=4, ge=1, le=256, description="Threads that compute features from whole results.")
    cache_entries: int = Field(default=96, ge=1)
    cache_ttl_s: float = Field(default=300.0, gt=0.0)
    answer_rows: int = Field(default=200, ge=1, description="Rows of an answer; the cache has all.")
