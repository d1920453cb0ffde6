-- Version 1. A payload is JSON; its checksum covers the payload and the place it stands at.

CREATE TABLE runs (
    key INTEGER PRIMARY KEY, -- in the order in which runs were accepted
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    info TEXT NOT NULL,
    info_checksum BLOB NOT NULL,
    standing TEXT NOT NULL,
    standing_checksum BLOB NOT NULL
) STRICT;

-- Where the run stood after each step. Small, whatever the size of the state.
CREATE TABLE positions (
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    step INTEGER NOT NULL,
    payload TEXT NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (run, step)
) STRICT;

-- What each step changed of the state. The value of a channel is its last `whole` change, and the
-- items that were appended after that.
CREATE TABLE changes (
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    channel TEXT NOT NULL,
    step INTEGER NOT NULL,
    whole INTEGER NOT NULL, -- 1 if nothing before it matters: the channel was set or cleared
    payload TEXT NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (run, channel, step)
) STRICT;

CREATE INDEX whole_changes ON changes (run, channel, step) WHERE whole = 1;

-- What became of tasks. Records of committed steps are kept: they are the history of the run.
CREATE TABLE records (
    key INTEGER PRIMARY KEY, -- in the order in which they were made
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    step INTEGER NOT NULL,
    task INTEGER NOT NULL,
    final INTEGER NOT NULL, -- 1 if the task never runs again
    payload TEXT NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

CREATE INDEX records_by_step ON records (run, step);

-- A finished task never runs again; so it cannot finish twice.
CREATE UNIQUE INDEX final_records ON records (run, step, task) WHERE final = 1;

CREATE TABLE events (
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    payload TEXT NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT;
