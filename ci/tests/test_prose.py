"""The pages stay short, pages and comments speak plain English, and links lead somewhere.

Run: python3 -m unittest discover -s ci/tests
"""

from pathlib import Path
import re
import subprocess
import unittest

ROOT = Path(__file__).resolve().parent.parent.parent

MOST_WORDS = 35_000
LIMITS = (  # words of a page; the first pattern that matches counts
    ("ARCHITECTURE.md", 2_000),
    ("BENCHMARKS.md", 2_500),
    ("benches/README.md", 800),
    ("workloads/README.md", 700),
    ("workloads/*/README.md", 500),
    ("docs/decisions/0*.md", 300),
    ("docs/cases/*.md", 800),
    ("docs/*.md", 1_500),
    ("README.md", 1_500),
)

# Habits that make a reader stumble. Code, output of programs and generated tables are not searched.
PHRASES = (
    r"\bof which (?:the|it|nothing|nobody)\b", r"(?:^|[.;:] )of (?:it|them|those|which)\b",
    r"\b(?:is|are|was|were|has been) (?:told|said|met)\b",
    r"\bnobody\b", r"\bwhoever\b", r"\bwho asks\b", r"\bthose that\b",
    r"\bas (?:it|they) comes?\b", r"\bsee there\b", r"\bjemalloc so\b",
    r"\bwhat is (?:freed|there|free|left)\b", r"\bwhat (?:there is|goes|came|went)\b",
    r"\bg(?:o|oes|one|ave|ives?|iven) back\b", r"\bwent back\b", r"\bhas pages back\b",
    r"\bbeside\b", r"\bbehind\b(?! (?:a|one|its) (?:lock|door)\b)", r"\bstands? (?:in|behind|there|under|below)\b",
    r"\b(?:a|one) (?:line|row|bar|page|system call) a \w+\b", r"\bby the hour\b",
    r"\bwith half of it\b", r"\bnot one instruction of it\b", r"\bsince when\b", r"\bmended\b", r"\bat hand\b",
)


SOURCES = ("*.rs", "*.c", "*.h", "*.py", "*.sh", "*.toml")


def pages():
    return files("*.md")


def files(*patterns):
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(Path(name) for name in {*listed} - {""} if (ROOT / name).exists())


def read(page):
    return (ROOT / page).read_text()


def words(page):
    """As `wc -w` counts them: the bars of a table are words too."""
    return len((ROOT / page).read_bytes().split())


def shown_words(page):
    """Without the commands in comments that ci/cases.py runs."""
    return len(re.sub(r"<!-- (?:run|keep|expect):.*?-->", "", read(page), flags=re.DOTALL).split())


def is_one_of(page, *patterns):
    return any(len(page.parts) == len(Path(pattern).parts) and page.match(pattern) for pattern in patterns)


def without_code(text):
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def prose(text):
    """The paragraphs, each on one line, without code, addresses of links and generated tables."""
    text = re.sub(r"<!-- (?:table|matrix|second matrix)\b.*?<!-- end.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", without_code(text), flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n|\n(?=[|#-])", text)]


def comments(name, text):
    """The paragraphs of a source's comments, each on one line, without code."""
    paragraph, inside = [], False
    for line in map(str.strip, text.splitlines()):
        if name.suffix in (".c", ".h"):
            comment = re.match(r"\*? ?(.*)" if inside else r"/\* ?(.*)", line)
            inside = bool(comment) and "*/" not in line
        else:
            comment = re.match(r"//[/!]? ?(.*)" if name.suffix == ".rs" else r"#(?!!) ?(.*)", line)
        words = comment[1] if comment else ""
        if not words or re.match(r"[-*|] ", words):
            yield re.sub(r"`[^`]*`", "CODE", " ".join(paragraph))
            paragraph = []
        if words:
            paragraph.append(words)
    yield re.sub(r"`[^`]*`", "CODE", " ".join(paragraph))


def private_phrases(name, paragraphs):
    for paragraph in paragraphs:
        for phrase in PHRASES:
            for match in re.finditer(phrase, paragraph, re.IGNORECASE):
                yield f"{name}: {paragraph[max(0, match.start() - 30):match.end() + 30]}"


def anchors(text):
    """The anchors of a page's headings, as a forge makes them."""
    for heading in re.findall(r"^#+ (.*)$", without_code(text), flags=re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(read(page))):
        path, _, anchor = target.partition("#")
        file = ROOT / page.parent / path if path else ROOT / page
        if re.match(r"[a-z]+:", target):
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())):
            yield f"{page}: {target}"


class Prose(unittest.TestCase):
    maxDiff = None

    def test_no_page_is_longer_than_its_limit(self):
        long = []
        for page in pages():
            limit = next((limit for pattern, limit in LIMITS if is_one_of(page, pattern)), None)
            if limit and shown_words(page) > limit:
                long.append(f"{page}: {shown_words(page)} words, at most {limit}")
        self.assertEqual(long, [])

    def test_all_pages_together(self):
        self.assertLessEqual(sum(words(page) for page in pages()), MOST_WORDS)

    def test_no_private_phrases(self):
        found = []
        for page in pages():
            if is_one_of(page, "README.md", "docs/*.md", "ARCHITECTURE.md"):
                found += private_phrases(page, prose(read(page)))
        self.assertEqual(found, [])

    def test_no_private_phrases_in_comments(self):
        found = []
        for name in files(*SOURCES):
            if name != Path(__file__).resolve().relative_to(ROOT):
                found += private_phrases(name, comments(name, read(name)))
        self.assertEqual(found, [])

    def test_words_are_those_of_wc(self):
        counted = subprocess.run(["wc", "-w", *pages()], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        self.assertEqual(sum(words(page) for page in pages()), int(counted.splitlines()[-1].split()[0]))

    def test_a_private_phrase_is_found(self):
        text = "Memory that\nnobody asks for.\n\n```\nnobody\n```\n\n`nobody`"
        self.assertEqual([p for p in prose(text) if re.search(r"\bnobody\b", p)], ["Memory that nobody asks for."])
        for name, text in (
            ("a.rs", "/// Memory that\n/// nobody asks for.\nfn nobody() {} // `nobody`"),
            ("a.c", "/* Memory that\n * nobody asks for. */\nint nobody;"),
            ("a.py", "# Memory that\n# nobody asks for.\nnobody = 1"),
        ):
            self.assertEqual(len([*private_phrases(name, comments(Path(name), text))]), 1, name)

    def test_links_lead_somewhere(self):
        self.assertEqual([link for page in pages() for link in broken_links(page)], [])
