"""Sphinx's settings of the site, which is read from the disk: no web fonts, and a search without a server."""

from pathlib import Path
import tomllib

here = Path(__file__).resolve().parent
manifest = tomllib.loads((here.parents[1] / "Cargo.toml").read_text())["workspace"]["package"]

project = "ebbmalloc"
release = version = manifest["version"]
extensions = ["myst_parser"]
root_doc = "index"
# Anchors as a forge makes them.
myst_heading_anchors = 6
myst_enable_extensions = []
# Programs' output and tables of settings are not all of a known language.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
highlight_language = "text"

html_theme = "furo"
html_title = f"ebbmalloc {release}"
html_static_path = ["look"]
html_css_files = ["style.css"]
html_show_copyright = False
html_use_index = False
html_show_sourcelink = False
html_copy_source = False
# A page from the disk may not fetch others, so results are headings without excerpts.
html_show_search_summary = False
html_search_scorer = str(here / "scorer.js")
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
