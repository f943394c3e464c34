"""What the warehouse holds: customers and chunks of events, the same for the same seed."""

import random

import pyarrow as pa
import pyarrow.compute as pc

CUSTOMERS = 20_000
KINDS = "view cart order return refund call visit review search share login alert".split()
CHANNELS = "web app shop phone mail partner".split()
REGIONS = "north south east west centre islands".split()
SEGMENTS = "new regular loyal dormant trade".split()
WORDS = (
    "invoice shelf garden battery winter shipment cotton engine ticket harbour lemon velvet "
    "station mirror copper pepper bridge lantern saddle window anchor marble"
).split()


def customers() -> pa.Table:
    """The dimension: one row a customer."""
    count = CUSTOMERS
    return pa.table(
        {
            "customer": pa.array(range(count), pa.int32()),
            "region": words(REGIONS, count, 1),
            "segment": words(SEGMENTS, count, 2),
        }
    )


def events(seed: int, rows: int) -> pa.Table:
    uniform = [pc.random(rows, initializer=seed * 16 + column) for column in range(6)]
    note_words = [words(WORDS, rows, seed * 16 + column) for column in range(8, 13)]
    notes = pc.binary_join_element_wise(*note_words, " ")
    amount = pc.round(pc.multiply(pc.power(uniform[2], 3.0), 5000.0), 2)
    at = pc.add(pc.floor(pc.multiply(uniform[1], 86_400_000.0)), 1.7e12)
    return pa.table(
        {
            "customer": pc.cast(pc.floor(pc.multiply(uniform[0], float(CUSTOMERS))), pa.int32()),
            "at": pc.cast(pc.cast(at, pa.int64()), pa.timestamp("ms")),
            "kind": words(KINDS, rows, seed * 16 + 6),
            "channel": words(CHANNELS, rows, seed * 16 + 7),
            "amount": pc.if_else(pc.less(uniform[3], 0.06), None, amount),
            "note": pc.if_else(pc.less(uniform[4], 0.10), None, notes),
            "consent": pc.if_else(pc.less(uniform[5], 0.03), None, pc.less(uniform[5], 0.85)),
        }
    )


def words(of: list[str], rows: int, seed: int) -> pa.Array:
    """Words by chance."""
    places = pc.floor(pc.multiply(pc.random(rows, initializer=seed), float(len(of))))
    return pc.take(pa.array(of), pc.cast(places, pa.int32()))


def chunk_rows(count: int) -> list[int]:
    """How many rows each chunk has: warehouses cut results into chunks of very different sizes."""
    rng = random.Random(count)
    return [int(2000 * 2 ** rng.uniform(0.0, 4.3)) for _ in range(count)]
