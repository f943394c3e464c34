"""Features from events, as clients ask for them: filtered, joined with the customers, grouped, sorted.

`compute` is pure; it runs on a query thread.
"""

from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

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


def compute(events: list[pa.Table], customers: pa.Table, query: FeatureQuery) -> pa.Table:
    """One row for each customer and group."""
    table = pa.concat_tables(events)
    keep = pc.and_(table["consent"], pc.greater_equal(table["amount"], query.min_amount))
    if query.kinds:
        keep = pc.and_(keep, pc.is_in(table["kind"], pa.array(query.kinds)))
    kept = table.filter(keep)
    joined = kept.join(customers, keys="customer", join_type="inner")
    features = joined.group_by(["customer", *query.group_by]).aggregate(
        [("amount", "sum"), ("amount", "mean"), ("amount", "max"), ("at", "max"), ("note", "max"), ("amount", "count")]
    )
    return features.sort_by([("amount_sum", "descending")])
