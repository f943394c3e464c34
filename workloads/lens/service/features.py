"""Features from events: filtered, joined with the customers, grouped, sorted.

Pure; runs on a query thread.
"""

import pyarrow as pa
import pyarrow.compute as pc

from .queries import FeatureQuery


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
