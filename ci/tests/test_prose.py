"""The pages stay short, speak plain English, and their links lead somewhere.

Run: python3 -m unittest discover -s ci/tests
"""

from pathlib import Path
import re
import subprocess
import unittest

ROOT = Path(__file__).resolve().parent.parent.parent

MOST_WORDS = 35_000  # all pages together
LIMITS = [  # the first pattern that matches counts; words as `wc -w` has them
    ("ARCHITECTURE.md", 2_000),
    ("BENCHMARKS.md", 2_500),
    ("docs/decisions/0*.md", 300),
    ("docs/*.md", 1_500),
    ("README.md", 1_500),
]
# Pages that are still longer than their limit, with the words that they have. A page that is within its limit is removed here.
KNOWN_EXCESS: dict[str, int] = {}
# The same for all pages together.
KNOWN_TOTAL = MOST_WORDS

# Habits that a reader stumbles over. Examples, output of programs and inline code are not searched.
PHRASES = [
    r"\bof which\b", r"(?:^|[.;:,] )of it\b", r"\bof them (?:is|are)\b",
    r"\b(?:is|are|was|were) (?:told|said|met)\b",
    r"\bnobody\b", r"\bwhoever\b", r"\bwho asks\b", r"\bthose that\b", r"\bthose there are\b", r"\bthe one that says\b",
    r"\bas (?:it|they) comes?\b", r"\bsee there\b", r"\bjemalloc so\b", r"\bthe same so\b",
    r"\bwhat is (?:freed|there|free|left|not)\b", r"\bwhat (?:there is|goes|came|went)\b",
    r"\bg(?:o|oes|one) back\b", r"\bwent back\b", r"\bhas pages back\b", r"\bgives? back\b",
    r"\bbeside\b", r"\bbehind\b", r"\bstands? (?:in|behind|there|under|below)\b",
    r"\b(?:one|a) \w+ a (?:variant|process|thread|run|page|cycle|second)\b",
    r"\bwith half of it\b", r"\bnot one instruction of it\b", r"\bsince when\b",
    r"\bby the hour\b", r"\bmends?\b", r"\bmended\b", r"\bat hand\b", r"\bthe others' ",
]


def pages():
    """The pages that are documentation: not fixtures, not results."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    return [
        Path(name) for name in sorted(set(names))
        if name and (ROOT / name).exists() and not {"results", "fixtures", "recorded"} & set(Path(name).parts)
    ]


def read(page):
    return (ROOT / page).read_text()


def words(page):
    return len(read(page).split())


def prose(text):
    """The text without code, links' addresses, comments and generated tables; a paragraph is one line."""
    text = re.sub(r"<!-- (table|matrix|second matrix)\b.*?<!-- end.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [re.sub(r"\s+", " ", paragraph) for paragraph in re.split(r"\n\s*\n|\n(?=[|#-])", text)]


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


class Prose(unittest.TestCase):
    def test_no_page_is_longer_than_its_limit(self):
        for page in pages():
            limit = next((limit for pattern, limit in LIMITS if page.match(pattern) and within(page, pattern)), None)
            if limit is None:
                continue
            known = KNOWN_EXCESS.get(str(page))
            with self.subTest(page=str(page)):
                self.assertLessEqual(words(page), known or limit)
                if known:
                    self.assertGreater(words(page), limit, "within its limit: remove it from KNOWN_EXCESS")

    def test_all_pages_together(self):
        self.assertLessEqual(sum(words(page) for page in pages()), KNOWN_TOTAL)

    def test_no_private_phrases(self):
        found = [
            f"{page}: ...{paragraph[max(0, match.start() - 30):match.end() + 30]}..."
            for page in pages() if within_scope(page)
            for paragraph in prose(read(page))
            for phrase in PHRASES
            for match in re.finditer(phrase, paragraph, re.IGNORECASE)
        ]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_links_lead_somewhere(self):
        broken = []
        for page in pages():
            for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                file = ROOT / page.parent / path if path else ROOT / page
                if not file.exists():
                    broken.append(f"{page}: {target}")
                elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                    broken.append(f"{page}: {target}")
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


def within(page, pattern):
    """A pattern without a folder means the page at the root."""
    return len(page.parts) == len(Path(pattern).parts)


def within_scope(page):
    """Pages for users. Decisions and the history keep the words of their time."""
    return page.parts[0] == "README.md" or (page.parts[0] == "docs" and len(page.parts) == 2)


if __name__ == "__main__":
    unittest.main()
