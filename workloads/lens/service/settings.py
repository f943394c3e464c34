"""Settings of the service, read once from the environment (prefix LENS_)."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, HttpUrl

PREFIX = "LENS_"


class Settings(BaseModel):
    """What an operator of the service sets; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    warehouse_url: HttpUrl = Field(default=HttpUrl("http://127.0.0.1:8100"))
    warehouse_timeout_s: float = Field(default=120.0, gt=0.0)
    connector_threads: int = Field(
        default=8, ge=1, le=256, description="Threads that fetch and decode chunks of results."
    )
    query_threads: int = Field(
        default=4, ge=1, le=256, description="Threads that compute features from whole results."
    )
    cache_entries: int = Field(default=96, ge=1)
    cache_ttl_s: float = Field(default=300.0, gt=0.0)
    answer_rows: int = Field(default=200, ge=1, description="Rows of an answer; the cache has all.")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The settings that variables with the prefix give; the rest is as it comes."""
        return cls.model_validate(
            {
                name.removeprefix(PREFIX).lower(): value
                for name, value in environment.items()
                if name.startswith(PREFIX)
            }
        )
