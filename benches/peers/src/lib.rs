//! Empty: this package exists for its dependencies, whose C sources `build.py` builds.
