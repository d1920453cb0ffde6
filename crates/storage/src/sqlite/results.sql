-- Cached results of nodes, for all runs. If there are too many, the oldest are removed.
CREATE TABLE results (
    key BLOB PRIMARY KEY, -- a hash of all inputs of the result
    saved_at INTEGER NOT NULL, -- when, in milliseconds since 1970
    bytes INTEGER NOT NULL, -- of the payload
    payload TEXT NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

CREATE INDEX results_by_age ON results (saved_at, bytes);
