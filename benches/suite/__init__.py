"""The suite: runs benchmark programs under allocators, interleaved, and tells what came out."""
