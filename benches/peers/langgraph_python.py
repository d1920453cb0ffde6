"""The workloads of `benches/engine.rs` and `benches/durable` in LangGraph.

`langgraph_python.py [ROW]…` prints a JSON object for each row. `run` calls it. The rows have the names of our
benchmarks, and each run checks the same result.

Where LangGraph has several ways, this is the fastest one that we measured: synchronous runs where one node runs at a
time and asynchronous ones elsewhere, nodes and outputs that read only the fields they need, and SQLite with a write-ahead
log. `durability="sync"` saves a step before the next one begins, as graphrun does.
"""

import asyncio
import contextlib
import itertools
import json
import operator
import os
import random
import statistics
import string
import sys
import tempfile
import time
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

STEPS = 10_000
WIDTH = 1_000
CHANNELS = 1_000
RUNS = 1_000
TEAM_RUNS = 100
TEAM_STEPS = 13
SAVED_STEPS = 1_000
WAIT = 0.01

STORY = "As a user, I want to add two numbers."

# The rounds of a row, less the first, which finds the caches cold.
ROUNDS = int(os.environ.get("GRAPHRUN_BENCH_ROUNDS", "5"))


def row(name, units, clock, work, setup=contextlib.nullcontext):
    """Prints the median of the rounds, in microseconds for each unit of work.

    `setup` makes a context around each round. `work` gets what it returns; only `work` is measured.
    """
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    times = []
    for _ in range(ROUNDS + 1):
        with setup() as resource:
            begin = clock()
            work(resource)
            times.append(clock() - begin)
    figure = statistics.median_high(times[1:]) * 1e6 / units
    print(json.dumps({"row": name, "figure": figure}), flush=True)


class Counter(TypedDict):
    count: int


def counter(state):
    """A node that leads to itself."""
    graph = StateGraph(state, output_schema=Counter)
    graph.add_node(
        "increment", lambda state: {"count": state["count"] + 1}, input_schema=Counter
    )
    graph.add_edge(START, "increment")
    graph.add_conditional_edges(
        "increment",
        lambda state: "increment" if state["count"] < STEPS else END,
        ["increment", END],
    )
    return graph.compile()


def count(graph, start):
    end = graph.invoke(start, {"recursion_limit": STEPS + 1})
    assert end["count"] == STEPS


class Items(TypedDict):
    items: Annotated[list[int], operator.add]


class Item(TypedDict):
    item: int


async def nothing(state):
    return None


def squares_by_edges():
    def square(item):
        async def square(state):
            return {"items": [item * item]}

        return square

    graph = StateGraph(Items)
    graph.add_node("begin", nothing)
    graph.add_node("merge", nothing)
    graph.add_edge(START, "begin")
    for item in range(WIDTH):
        name = f"square_{item:03}"
        graph.add_node(name, square(item))
        graph.add_edge("begin", name)
        graph.add_edge(name, "merge")
    graph.add_edge("merge", END)
    return graph.compile()


def squares_by_dispatch():
    async def square(state):
        return {"items": [state["item"] * state["item"]]}

    graph = StateGraph(Items)
    graph.add_node("begin", nothing)
    graph.add_node("square", square, input_schema=Item)
    graph.add_edge(START, "begin")
    graph.add_conditional_edges(
        "begin",
        lambda state: [Send("square", {"item": item}) for item in range(WIDTH)],
        ["square"],
    )
    graph.add_edge("square", END)
    return graph.compile()


def spread(graph):
    end = asyncio.run(graph.ainvoke({"items": []}))
    assert sum(end["items"]) == sum(item * item for item in range(WIDTH))


def waits():
    async def wait(state):
        await asyncio.sleep(WAIT)

    graph = StateGraph(Counter)
    names = [f"wait_{index}" for index in range(5)]
    for name in names:
        graph.add_node(name, wait)
    for before, after in itertools.pairwise([START, *names, END]):
        graph.add_edge(before, after)
    return graph.compile()


async def wait_in_many_runs(graph):
    ends = await asyncio.gather(*(graph.ainvoke({"count": 7}) for _ in range(RUNS)))
    assert len(ends) == RUNS and all(end["count"] == 7 for end in ends)


class Team(TypedDict):
    story: str
    design: str
    code: int
    passed: bool
    reviews: int


def team(saver=None):
    graph = StateGraph(Team)
    graph.add_node("ba", lambda state: {"story": STORY})
    graph.add_node("architect", lambda state: {"design": state["story"]})
    graph.add_node("sse", lambda state: {"code": state["code"] + 1})
    graph.add_node("tests", lambda state: {"passed": state["code"] > 2})
    graph.add_node("qa", lambda state: {"reviews": state["reviews"] + 1})
    graph.add_node("deliver", lambda state: None)
    graph.add_edge(START, "ba")
    graph.add_edge("ba", "architect")
    graph.add_edge("architect", "sse")
    graph.add_edge("sse", "tests")
    graph.add_conditional_edges(
        "tests", lambda state: "qa" if state["passed"] else "sse", ["qa", "sse"]
    )
    graph.add_conditional_edges(
        "qa",
        lambda state: "deliver" if state["reviews"] > 1 else "sse",
        ["deliver", "sse"],
    )
    graph.add_edge("deliver", END)
    return graph.compile(checkpointer=saver)


def run_team(graph, **options):
    end = graph.invoke({"code": 0, "passed": False, "reviews": 0}, **options)
    assert end["code"] == 4


@contextlib.contextmanager
def saver_in(place, checkpoints):
    """A database in a new folder, which has at least so many checkpoints in the end."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        with SqliteSaver.from_conn_string(f"{folder}/runs.db") as saver:
            saver.setup()
            yield saver
            (found,) = saver.conn.execute("SELECT count(*) FROM checkpoints").fetchone()
            assert found >= checkpoints, f"{found} of {checkpoints} steps saved"


def saved(thread):
    return {"configurable": {"thread_id": thread}, "recursion_limit": SAVED_STEPS + 1}


def run_saved_teams(saver):
    graph = team(saver)
    for run in range(TEAM_RUNS):
        run_team(graph, config=saved(str(run)), durability="sync")


class Text(TypedDict):
    text: str


def noise(seed):
    """A kilobyte that differs from every other and hardly compresses."""
    characters = string.ascii_letters + string.digits
    return "".join(random.Random(seed).choices(characters, k=1_000))


def save_steps(saver, texts):
    """Saves each text in a step."""
    remaining = iter(texts)
    graph = StateGraph(Text)
    graph.add_node("work", lambda state: {"text": next(remaining)})
    graph.add_edge(START, "work")
    graph.add_conditional_edges(
        "work",
        lambda state: END if state["text"] == texts[-1] else "work",
        ["work", END],
    )
    graph = graph.compile(checkpointer=saver)
    end = graph.invoke({"text": ""}, saved("steps"), durability="sync")
    assert end["text"] == texts[-1]


def main():
    cpu, elapsed = time.process_time, time.perf_counter

    # In `/dev/shm`, a sync takes no time.
    def of_teams():
        return saver_in("/dev/shm", TEAM_RUNS * TEAM_STEPS)

    def in_memory():
        return saver_in("/dev/shm", SAVED_STEPS)

    def on_disk():
        return saver_in(".", SAVED_STEPS)

    graph = counter(Counter)
    row("chain, µs a step", STEPS, cpu, lambda _: count(graph, {"count": 0}))

    by_edges = squares_by_edges()
    row("fan-out of 1,000 by edges, µs a task", WIDTH, cpu, lambda _: spread(by_edges))
    by_dispatch = squares_by_dispatch()
    row(
        "fan-out of 1,000 by dispatch, µs a task",
        WIDTH,
        cpu,
        lambda _: spread(by_dispatch),
    )

    channels = ["count", *(f"other_{index:03}" for index in range(1, CHANNELS))]
    wide = counter(TypedDict("Wide", {name: int for name in channels}))
    start = dict.fromkeys(channels, 0)
    row("1,000 channels, one changes, µs a step", STEPS, cpu, lambda _: count(wide, start))

    def run_teams(_):
        for _ in range(TEAM_RUNS):
            run_team(in_memory_only)

    in_memory_only = team()
    row("dev-team shape, instant nodes, µs a run", TEAM_RUNS, cpu, run_teams)

    waiting = waits()
    row(
        "1,000 runs × 5 nodes × 10 ms, ms",
        1_000,
        elapsed,
        lambda _: asyncio.run(wait_in_many_runs(waiting)),
    )

    row(
        "dev-team shape without disk, µs a run",
        TEAM_RUNS,
        cpu,
        run_saved_teams,
        of_teams,
    )
    texts = [noise(seed) for seed in range(SAVED_STEPS)]

    def save(saver):
        save_steps(saver, texts)

    row("a step of 1 KB without disk, µs", SAVED_STEPS, cpu, save, in_memory)
    row("a step of 1 KB on disk, µs", SAVED_STEPS, elapsed, save, on_disk)


main()
