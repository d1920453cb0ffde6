-- Format 1. What is in a row of the journal, and what proves it: `storage/journal`.

-- What is known of a run from its beginning, and what it goes by since it was migrated.
CREATE TABLE runs (
    key INTEGER PRIMARY KEY, -- in the order in which runs were accepted
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    info BLOB NOT NULL,
    info_checksum BLOB NOT NULL
) STRICT;

-- How each run stands: the end of its journal, and who may write it.
CREATE TABLE heads (
    run INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    number INTEGER NOT NULL,    -- the last entry
    committed INTEGER NOT NULL, -- the last entry that commits a step
    step INTEGER NOT NULL,
    seq INTEGER NOT NULL,       -- the last event
    link BLOB NOT NULL,         -- of the last entry
    standing TEXT NOT NULL,
    checksum BLOB NOT NULL,     -- of all of the above
    fence INTEGER NOT NULL,     -- the last lease
    owner TEXT,                 -- whose it is, as JSON; none if the run was given back
    until INTEGER NOT NULL,     -- when it ends, in milliseconds since 1970
    lease_checksum BLOB NOT NULL -- of these three
) STRICT;

-- Every entry of every run, in the order in which they were made, so that pages fill up.
CREATE TABLE journal (
    key INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    number INTEGER NOT NULL, -- from one, without gaps
    step INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    changes BLOB,            -- of the step that the entry commits
    meta BLOB NOT NULL,
    data BLOB NOT NULL,
    link BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX journal_of_run ON journal (run, number);

-- What people said to runs. The position of a run says which it has taken in.
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- of all runs, so that a copy of a run goes on
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    id TEXT NOT NULL,
    message TEXT NOT NULL,
    checksum BLOB NOT NULL,
    UNIQUE (run, id)
) STRICT;
