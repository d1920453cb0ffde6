"""Builds the recorded runs of the software team from what its "model" wrote, under sources/.

    python3 build.py           writes retry.jsonl, tech_lead.jsonl and architect.jsonl
    python3 build.py --check   exit code 1 when one of them is not what would be written

Every entry answers one request of one node. A retry is answered only when its prompt quotes what pytest really
printed about the attempt before (`quotes`), so that a run that does not feed failures back finds no answer.
check.py runs every attempt and proves the quotes.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
CHARACTERS_A_TOKEN = 4
FEEDBACK_CHARACTERS_MAX = 3000
TEMPLATE_CHARACTERS = 2000  # of a system text and a prompt, about


@dataclass(frozen=True)
class Attempt:
    """The code of one answer, and what pytest says about it."""

    artifact_id: str
    layers: tuple[str, ...]  # folders under sources/code, the later ones on top
    passed: int
    failed: int

    def files(self) -> dict[str, str]:
        """The contents by path, in the order of files.json."""
        contents = {}
        for layer in ("complete", *self.layers):
            folder = SOURCES / "code" / layer
            contents |= {path: (folder / path).read_text(encoding="utf-8") for path in PATHS if (folder / path).is_file()}
        return contents

    def artifact(self) -> dict:
        contents = self.files()
        return {
            "artifact_id": self.artifact_id,
            "files": [
                {
                    "file_path": path,
                    "file_type": about["file_type"],
                    "content": contents[path],
                    "description": about["description"],
                    "story_ids": about["story_ids"],
                }
                for path, about in PATHS.items()
            ],
        }


@dataclass(frozen=True)
class Entry:
    """One answer, and the texts by which its request is known."""

    node: str
    about: str
    answer: dict
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()  # lines of pytest's output on the attempt before
    reads: tuple = ()  # what the prompt shows, for an estimate of its length

    def line(self) -> str:
        when = {"contains": [*self.contains, *self.quotes]}
        if self.lacks:
            when["lacks"] = list(self.lacks)
        entry = {
            "v": 1,
            "about": self.about,
            "node": self.node,
            "when": when,
            "reply": {"json": self.answer, "usage": self.usage(), "model": "recorded/dev-team"},
        }
        return json.dumps(entry, ensure_ascii=False) + "\n"

    def usage(self) -> dict:
        asked = TEMPLATE_CHARACTERS + sum(map(length, self.reads))
        return {
            "input_tokens": asked // CHARACTERS_A_TOKEN,
            "output_tokens": len(json.dumps(self.answer, ensure_ascii=False)) // CHARACTERS_A_TOKEN,
        }


def length(value: object) -> int:
    """The length of all texts in a value, as a prompt shows them: without quotes, names and brackets."""
    match value:
        case str():
            return len(value) + 1
        case dict():
            return sum(map(length, value.values()))
        case list() | tuple():
            return sum(map(length, value))
        case _:
            return len(str(value)) + 1


def source(name: str):
    text = (SOURCES / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else text.strip()


PATHS = source("common/files.json")
REQUIREMENTS = source("common/clarified_requirements.md")
STORIES = source("common/user_stories.json")
SUITE = source("common/test_suite.json")
BRIEF = (HERE / "brief.md").read_text(encoding="utf-8")

WRONG_ORDER = Attempt("CODE-001", ("order_and_borders",), passed=21, failed=3)
WRONG_IMPORT = Attempt("CODE-001", ("unsaved_changes", "storage_import"), passed=0, failed=1)
UNSAVED = Attempt("CODE-002", ("unsaved_changes",), passed=20, failed=4)
CACHED = Attempt("CODE-003", ("unsaved_changes", "saved_on_close"), passed=17, failed=7)
REGISTRY = Attempt("CODE-001", ("shared_registry",), passed=24, failed=0)


def complete(number: int) -> Attempt:
    return Attempt(f"CODE-{number:03}", (), passed=24, failed=0)


# What the engineer wrote, in order, by run: check.py runs these, and so does an end-to-end test in the sandbox.
ATTEMPTS = {
    "retry": (WRONG_ORDER, complete(2)),
    "tech_lead": (WRONG_IMPORT, UNSAVED, CACHED, complete(4)),
    "architect": (REGISTRY, complete(2)),
}


def before_code(spec: dict) -> list[Entry]:
    """What is the same in every run but for the spec: the analyst, quality control and the technical architect."""
    answer = {"clarified_requirements": REQUIREMENTS, "user_stories": STORIES}
    known = (REQUIREMENTS, STORIES)
    return [
        Entry("ba", "eight stories", answer, contains=("a task list we can use from the terminal",), reads=(BRIEF,)),
        Entry("qc", "three cases for each story", SUITE, contains=("US-008 Use the terminal",), reads=known),
        Entry("ta", "the design", spec, contains=("US-008 Use the terminal",), reads=known),
    ]


def first(attempt: Attempt, spec: dict, about: str, contains=(), lacks=(), shows=()) -> Entry:
    """The first attempt of a round; `shows` is what its prompt has beside the plan."""
    return Entry(
        "sse",
        about,
        attempt.artifact(),
        contains=("This is attempt 1 of 3.", "TC-024 an unknown task is refused with a message", *contains),
        lacks=tuple(lacks),
        reads=(STORIES, SUITE, spec, *shows),
    )


def again(attempt: Attempt, before: Attempt, number: int, about: str, quotes: tuple[str, ...]) -> Entry:
    return Entry(
        "sse",
        about,
        attempt.artifact(),
        contains=(f": attempt {number} of 3", "## Your previous code"),
        quotes=quotes,
        reads=(SUITE, before.artifact(), "x" * FEEDBACK_CHARACTERS_MAX),
    )


def reader(node: str, about: str, answer: str, attempt: Attempt, spec: dict, contains, lacks=()) -> Entry:
    """A node that reads everything: the tech lead and QA."""
    known = (REQUIREMENTS, STORIES, SUITE, spec, attempt.artifact())
    return Entry(node, about, source(answer), tuple(contains), tuple(lacks), reads=known)


def retry() -> list[Entry]:
    spec = source("common/spec.json")
    wrong, right = ATTEMPTS["retry"]
    return [
        *before_code(spec),
        first(wrong, spec, "sorts priorities by name, is late on the due day, and searches by case"),
        again(
            right,
            wrong,
            2,
            "mends the three",
            (
                "FAILED tests/test_planning.py::test_a_task_due_today_is_not_overdue_yet",
                "E   AssertionError: assert [] == ['Call the BANK']",
                "FAILED tests/test_tasks.py::test_higher_priority_comes_first_then_the_earlier_due_day",
                "3 failed, 21 passed",
            ),
        ),
        reader(
            "tl",
            "approves",
            "retry/review.json",
            right,
            spec,
            ("# Review: the tests pass", "Attempt 2: 24 of 24 tests pass.", "text.casefold() in task.title.casefold()"),
        ),
        reader(
            "qa",
            "passes",
            "retry/report.json",
            right,
            spec,
            ("CODE-002, attempt 2: 24 of 24 tests pass.", "The tech lead's review: approved"),
        ),
    ]


def tech_lead() -> list[Entry]:
    spec = source("common/spec.json")
    wrong_import, unsaved, cached, right = ATTEMPTS["tech_lead"]
    return [
        *before_code(spec),
        first(
            wrong_import,
            spec,
            "imports a module that does not exist",
            lacks=("The tech lead's guidance",),
        ),
        again(
            unsaved,
            wrong_import,
            2,
            "mends the import, which shows that changes are not saved: 20 of 24",
            (
                "ERROR collecting tests/test_cli.py",
                "E   ModuleNotFoundError: No module named 'taskboard.storage'",
            ),
        ),
        again(
            cached,
            unsaved,
            3,
            "adds a cache that is written back on close, which nobody calls: 17 of 24",
            (
                "E   AssertionError: assert <Status.OPEN: 'open'> is <Status.DONE: 'done'>",
                "FAILED tests/test_cli.py::test_a_done_task_is_marked",
                "FAILED tests/test_planning.py::test_a_dependency_is_kept",
                "FAILED tests/test_storage.py::test_a_change_is_kept",
                "4 failed, 20 passed",
            ),
        ),
        Entry(
            "tl",
            "is given the second attempt, not the third, and finds the cause",
            source("tech_lead/review_escalation.json"),
            contains=(
                "# Escalation: the engineer has used up the attempts",
                "Attempt 2: 20 of 24 tests pass.",
                "return self._store.get(task_id)",
            ),
            quotes=("FAILED tests/test_storage.py::test_a_change_is_kept", "4 failed, 20 passed"),
            lacks=("self._by_tag", "17 of 24 tests pass", "7 failed"),
            reads=(STORIES, SUITE, spec, unsaved.artifact(), "x" * FEEDBACK_CHARACTERS_MAX),
        ),
        first(
            right,
            spec,
            "follows the guidance, from the best code so far",
            (
                "## The tech lead's guidance",
                "Make Task a frozen dataclass",
                "## The best code so far",
                "20 of 24 tests pass.",
                "return self._store.get(task_id)",
            ),
            lacks=("self._by_tag",),
            shows=(unsaved.artifact(), source("tech_lead/review_escalation.json"), "x" * FEEDBACK_CHARACTERS_MAX),
        ),
        reader(
            "tl",
            "approves",
            "tech_lead/review.json",
            right,
            spec,
            (
                "# Review: the tests pass",
                "## Your guidance before this round",
                "Attempt 1: 24 of 24 tests pass.",
                "@dataclass(frozen=True)",
            ),
        ),
        reader(
            "qa",
            "passes",
            "tech_lead/report.json",
            right,
            spec,
            ("CODE-004, attempt 1: 24 of 24 tests pass.", "The tech lead's review: approved"),
        ),
    ]


def architect() -> list[Entry]:
    old, new = source("architect/spec_registry.json"), source("architect/spec_blueprint.json")
    registry, right = ATTEMPTS["architect"]
    of_old_code, of_new_code = "_REGISTRY: dict[int, Task] = {}", "for home, work in (in_files, in_memory):"
    return [
        *before_code(old),
        first(
            registry,
            old,
            "keeps tasks in the module, as the design wants it",
            ("Decision: The module taskboard.store keeps all tasks",),
            lacks=("## The best code so far", "## The code that was sent back"),
        ),
        reader(
            "tl",
            "approves what the tests do not refuse",
            "architect/review_registry.json",
            registry,
            old,
            ("# Review: the tests pass", "Attempt 1: 24 of 24 tests pass.", of_old_code),
        ),
        reader(
            "qa",
            "sees that no code could fulfil the third criterion of US-007 with this design",
            "architect/report_registry.json",
            registry,
            old,
            ("CODE-001, attempt 1: 24 of 24 tests pass.", "The tech lead's review: approved", of_old_code),
            ("## Your last report",),
        ),
        Entry(
            "architect",
            "a new design from the story that the old one made impossible",
            new,
            contains=(
                "must give every list a store of its own",
                "two lists in memory share their tasks",
                "### taskboard/store.py",
                of_old_code,
                "### tests/conftest.py",
                "- The module taskboard.store keeps all tasks.",
            ),
            lacks=("### taskboard/cli.py",),
            reads=(REQUIREMENTS, STORIES, old, registry.files()["taskboard/store.py"]),
        ),
        first(
            right,
            new,
            "starts afresh with the new design, without the old code",
            ("Decision: A list owns its store",),
            lacks=("def reset()", "## The best code so far", "## The code that was sent back"),
        ),
        reader(
            "tl",
            "approves",
            "architect/review.json",
            right,
            new,
            ("# Review: the tests pass", "Attempt 1: 24 of 24 tests pass.", of_new_code),
            (of_old_code,),
        ),
        reader(
            "qa",
            "passes",
            "architect/report.json",
            right,
            new,
            ("CODE-002, attempt 1: 24 of 24 tests pass.", "## Your last report", of_new_code),
            (of_old_code,),
        ),
    ]


RUNS = {"retry": retry, "tech_lead": tech_lead, "architect": architect}


def main(arguments: list[str]) -> int:
    stale = []
    for name, run in RUNS.items():
        path = HERE / f"{name}.jsonl"
        text = "".join(entry.line() for entry in run())
        if arguments == ["--check"]:
            stale += [path.name] if not path.is_file() or path.read_text(encoding="utf-8") != text else []
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
    if stale:
        print(f"not what build.py writes: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
