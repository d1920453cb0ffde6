-- Format 1. What is in a row of the journal, and what proves it: `storage/journal`.
--
-- No table refers to another by a foreign key: each key that is checked costs every entry a lock on
-- a row of `runs`. Whoever writes a run holds the lock of its row in `heads`, and a run is removed
-- from all tables in one transaction.

-- What is known of a run from its beginning, and what it goes by since it was migrated.
CREATE TABLE runs (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order in which runs were accepted
    id text COLLATE "C" NOT NULL UNIQUE,
    name text COLLATE "C" NOT NULL UNIQUE,
    info bytea NOT NULL,
    info_checksum bytea NOT NULL
);

-- How each run stands: the end of its journal, and who may write it. A row is small and written
-- with every entry; with room in its page and no index but its key, its new version stays there.
CREATE TABLE heads (
    run bigint PRIMARY KEY,
    number bigint NOT NULL,    -- the last entry
    committed bigint NOT NULL, -- the last entry that commits a step
    step bigint NOT NULL,
    seq bigint NOT NULL,       -- the last event
    link bytea NOT NULL,       -- of the last entry
    standing text NOT NULL,
    checksum bytea NOT NULL,   -- of all of the above
    fence bigint NOT NULL,     -- the last lease
    owner text,                -- whose it is, as JSON; none if the run was given back
    until bigint NOT NULL,     -- when it ends, in milliseconds since 1970
    lease_checksum bytea NOT NULL -- of these three
) WITH (fillfactor = 50);

-- Every entry of every run.
CREATE TABLE journal (
    run bigint NOT NULL,
    number bigint NOT NULL, -- from one, without gaps
    step bigint NOT NULL,
    seq bigint NOT NULL,
    changes bytea,          -- of the step that the entry commits
    meta bytea NOT NULL,
    data bytea NOT NULL,
    link bytea NOT NULL,
    PRIMARY KEY (run, number)
) PARTITION BY HASH (run);

-- What is in them is as small as it gets already.
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

-- What nodes computed that may be used again, by any run. When there is too much, the oldest goes.
CREATE TABLE results (
    key bytea PRIMARY KEY, -- a hash of everything that the result follows from
    kept bigint NOT NULL,  -- when, in milliseconds since 1970
    bytes bigint NOT NULL, -- of the payload
    payload text NOT NULL,
    checksum bytea NOT NULL
);

CREATE INDEX results_by_age ON results (kept, bytes);

-- What people said to runs. The position of a run says which it has taken in. Whoever adds one holds
-- the lock of the run, so that numbers of one run come to be in their order.
CREATE TABLE inbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    message text NOT NULL,
    checksum bytea NOT NULL,
    UNIQUE (run, id)
);

CREATE INDEX inbox_of_run ON inbox (run, number);
