"""Questions: keyed, independent of each other, filled from the corpus, and refused where nothing fills them."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from draftledger.corpus.questions import SLOT, Questions, slots_of
from draftledger.errors import ConfigError

TEMPLATES = Path(__file__).resolve().parents[2] / "config" / "questions" / "default.yaml"
LISTS = {"noun": "words/noun*", "adjective": "words/adjective*", "verb": "words/verb*"}
MODULE = '''
class Box:
    def area(self, scale=1):
        """Return the area of this box in square metres."""
        side = self.side * scale
        return side * side

def undocumented(x):
    return x
'''


def corpus() -> pa.Table:
    texts = {
        "words/noun.txt": "apple\nkettle\nowl\n",
        "words/adjective.txt": "old\nred\n",
        "words/verb.txt": "carry\npaint\n",
        "code/box.py": MODULE,
        "prose/a.txt": "The ferry crosses the sound every morning before the fog has lifted. Short one. "
        "Nobody in the harbour remembers when the first boat came.\n",
    }
    return pa.table({"id": list(texts), "text": list(texts.values())})


def questions(seed: int = 1, **shares: float) -> Questions:
    templates = yaml.safe_load(TEMPLATES.read_text())
    return Questions(
        templates, slots_of(corpus(), lists=LISTS), shares or {"chat": 1, "code": 1, "maths": 1, "prose": 1}, seed
    )


def test_a_question_depends_on_seed_and_number_alone():
    forward = [questions().question(n) for n in range(50)]
    assert [questions().question(n) for n in reversed(range(50))] == forward[::-1]
    assert [q.text for q in forward] != [questions(seed=2).question(n).text for n in range(50)]


def test_every_template_is_drawn_and_every_slot_filled():
    drawn = [questions().question(n) for n in range(3000)]
    templates = yaml.safe_load(TEMPLATES.read_text())["kinds"]
    assert {(q.kind, q.template) for q in drawn} == {
        (k, n) for k, known in templates.items() for n in range(len(known))
    }
    assert not [q.text for q in drawn if SLOT.search(q.text) or "{" in q.text.split("\n")[0]]


def test_shares_weigh_the_kinds():
    kinds = Counter(questions(chat=3, maths=1).question(n).kind for n in range(2000))
    assert set(kinds) == {"chat", "maths"}
    assert 0.7 < kinds["chat"] / 2000 < 0.8


def test_sentences_and_functions_come_from_the_texts():
    slots = slots_of(corpus(), lists=LISTS)
    assert len(slots.sentences) == 2
    ((name, purpose, head, code),) = slots.functions
    assert (name, purpose) == ("area", "Return the area of this box in square metres.")
    assert head.startswith('def area(self, scale=1):\n    """Return')
    assert code == "def area(self, scale=1):\n    side = self.side * scale\n    return side * side"


def test_the_article_fits_its_word():
    texts = [questions(chat=1).question(n).text for n in range(500)]
    assert any("an apple" in t or "an owl" in t for t in texts)
    assert not [t for t in texts if "a apple" in t or "an kettle" in t or "an red" in t]


def test_a_list_without_words_and_a_corpus_without_functions_are_refused():
    with pytest.raises(ConfigError, match="no document matches"):
        slots_of(corpus(), lists={"noun": "absent/*"})
    bare = slots_of(corpus().filter(pa.array([True, True, True, False, True])), lists=LISTS)
    with pytest.raises(ConfigError, match="fills"):
        [Questions(yaml.safe_load(TEMPLATES.read_text()), bare, {"code": 1}, 1).question(n) for n in range(100)]
    with pytest.raises(ConfigError, match="has no templates"):
        questions(poetry=1).question(0)
