"""The messages that clients send and receive."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

GroupKey = Literal["region", "segment", "kind", "channel"]


class FeatureQuery(BaseModel):
    """Asks for the features of a customer group over some days of one data set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Annotated[int, Field(ge=0, le=9999)]
    days: Annotated[int, Field(ge=1, le=16)]
    min_amount: float = 0.0
    kinds: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    group_by: Annotated[tuple[GroupKey, ...], Field(min_length=1, max_length=3)] = ("region", "kind")


class Features(BaseModel):
    """An answer: the first rows of the features, and how many there are."""

    rows: list[dict[str, Any]]
    total_rows: int
    events: int
    cached: bool
