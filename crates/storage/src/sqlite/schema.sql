-- Format 1. `storage/journal` describes the rows of the journal and their hashes.

-- The properties of each run, from its start or its last migration.
CREATE TABLE runs (
    key INTEGER PRIMARY KEY, -- in the order in which runs were accepted
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    info BLOB NOT NULL,
    info_checksum BLOB NOT NULL
) STRICT;

-- The head of each run: the end of its journal, its status and its lease.
CREATE TABLE heads (
    run INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    number INTEGER NOT NULL,    -- the last entry
    before_open INTEGER NOT NULL, -- the last entry before the records of the open step
    step INTEGER NOT NULL,
    seq INTEGER NOT NULL,       -- the last event
    hash BLOB NOT NULL,         -- of the last entry
    run_status TEXT NOT NULL,
    checksum BLOB NOT NULL,     -- of all of the above
    fence INTEGER NOT NULL,     -- the last lease
    owner TEXT,                 -- its owner as JSON; null if the lease was released
    until INTEGER NOT NULL,     -- when it expires, in milliseconds since 1970
    lease_checksum BLOB NOT NULL -- of these three
) STRICT;

-- The entries of all runs in the order of their writing, so that pages fill up.
CREATE TABLE journal (
    key INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    number INTEGER NOT NULL, -- from one, without gaps
    step INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    changes BLOB,            -- of the step that the entry commits
    meta BLOB NOT NULL,
    data BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX journal_of_run ON journal (run, number);

-- The values of a long thread after one of its entries. A load begins there; without them, or if they are damaged,
-- it begins at the first entry.
CREATE TABLE kept_values (
    run INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    number INTEGER NOT NULL, -- the entry, which commits a step
    content BLOB NOT NULL,
    checksum BLOB NOT NULL   -- also of the hash of the entry
) STRICT;

-- Messages to runs. The position of a run contains the number of the last one that it has processed.
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- unique for all runs, so that a fork continues the count
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    id TEXT NOT NULL,
    message TEXT NOT NULL,
    checksum BLOB NOT NULL,
    UNIQUE (run, id)
) STRICT;
