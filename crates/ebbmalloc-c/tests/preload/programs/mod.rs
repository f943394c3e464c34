//! Real programs under the preload, each at work that it is used for, with the proof that the
//! allocator was in charge in it.

mod languages;
mod python;
mod python_embedders;
mod pythons;
mod servers;
mod tools;
