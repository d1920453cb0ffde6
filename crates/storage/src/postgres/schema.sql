-- Format 1. `storage/journal` describes the rows of the journal and their hashes.
--
-- There are no foreign keys: each would cost every entry a lock on a row of `runs`. A transaction that
-- writes a run locks its row in `heads`, and one transaction removes a run from all tables.

-- The properties of each run, from its start or its last migration.
CREATE TABLE runs (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order in which runs were accepted
    id text COLLATE "C" NOT NULL UNIQUE,
    name text COLLATE "C" NOT NULL UNIQUE,
    info bytea NOT NULL,
    info_checksum bytea NOT NULL
);

-- The head of each run: the end of its journal, its status and its lease. A row is small and written
-- with every entry; with room in its page and no index but its key, its new version stays there.
CREATE TABLE heads (
    run bigint PRIMARY KEY,
    number bigint NOT NULL,    -- the last entry
    before_open bigint NOT NULL, -- the last entry before the records of the open step
    step bigint NOT NULL,
    seq bigint NOT NULL,       -- the last event
    hash bytea NOT NULL,       -- of the last entry
    run_status text NOT NULL,
    checksum bytea NOT NULL,   -- of all of the above
    fence bigint NOT NULL,     -- the last lease
    owner text,                -- its owner as JSON; null if the lease was released
    until bigint NOT NULL,     -- when it expires, in milliseconds since 1970
    lease_checksum bytea NOT NULL -- of these three
) WITH (fillfactor = 50);

-- The entries of all runs.
CREATE TABLE journal (
    run bigint NOT NULL,
    number bigint NOT NULL, -- from one, without gaps
    step bigint NOT NULL,
    seq bigint NOT NULL,
    changes bytea,          -- of the step that the entry commits
    meta bytea NOT NULL,
    data bytea NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (run, number)
) PARTITION BY HASH (run);

-- These are compressed already.
ALTER TABLE journal
    ALTER COLUMN changes SET STORAGE EXTERNAL,
    ALTER COLUMN meta SET STORAGE EXTERNAL,
    ALTER COLUMN data SET STORAGE EXTERNAL;

DO $$
BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE journal_%s PARTITION OF journal FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            part, part);
    END LOOP;
END $$;

-- Cached results of nodes, for all runs. If there are too many, the oldest are removed.
CREATE TABLE results (
    key bytea PRIMARY KEY, -- a hash of all inputs of the result
    saved_at bigint NOT NULL,  -- when, in milliseconds since 1970
    bytes bigint NOT NULL, -- of the payload
    payload text NOT NULL,
    checksum bytea NOT NULL
);

CREATE INDEX results_by_age ON results (saved_at, bytes);

-- The values of a long thread after one of its entries. A load begins there; without them, or if they are damaged,
-- it begins at the first entry.
CREATE TABLE kept_values (
    run bigint PRIMARY KEY,
    number bigint NOT NULL, -- the entry, which commits a step
    content bytea NOT NULL,
    checksum bytea NOT NULL -- also of the hash of the entry
);

ALTER TABLE kept_values ALTER COLUMN content SET STORAGE EXTERNAL;

-- Messages to runs. The position of a run contains the number of the last one that it has processed.
-- A transaction that adds one locks the run, so that the numbers of a run follow their order.
CREATE TABLE inbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    message text NOT NULL,
    checksum bytea NOT NULL,
    UNIQUE (run, id)
);

CREATE INDEX inbox_of_run ON inbox (run, number);
