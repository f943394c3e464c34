"""Settings of the service, read once from the environment (prefix SSE_)."""

from typing import ClassVar

from pydantic import Field, RedisDsn

from answers.settings import EnvironmentSettings


class Settings(EnvironmentSettings):
    """What an operator of the service sets."""

    prefix: ClassVar[str] = "SSE_"

    redis_url: RedisDsn = Field(default=RedisDsn("redis://127.0.0.1:6379/0"))
    redis_connections: int = Field(default=64, ge=1, le=1024)
    redis_timeout_s: float = Field(
        default=60.0,
        gt=0.0,
        description="For one whole answer, so it must allow for the longest stream, and for "
        "tail_block_ms: redis-py's own 5 s break off long replays on a busy machine.",
    )
    tail_block_ms: int = Field(
        default=15_000, ge=100, description="How long a read for new events waits before a keep-alive comment is sent."
    )
    run_cache_size: int = Field(default=256, ge=1)
    page_events: int = Field(
        default=0, ge=0, description="Events of a history that are read at once; 0 reads all, as the case did."
    )
