-- What nodes computed that may be used again, by any run. When there is too much, the oldest goes.
CREATE TABLE results (
    key BLOB PRIMARY KEY, -- a hash of everything that the result follows from
    kept INTEGER NOT NULL, -- when, in milliseconds since 1970
    bytes INTEGER NOT NULL, -- of the payload
    payload TEXT NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

CREATE INDEX results_by_age ON results (kept, bytes);
