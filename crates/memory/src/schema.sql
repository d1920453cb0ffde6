-- One row for each entry; `seq` is the order in which entries were first written.
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tier TEXT NOT NULL,
    module TEXT,
    -- Microseconds since 1970; `expires` is null for entries that stay.
    updated INTEGER NOT NULL,
    expires INTEGER,
    created INTEGER NOT NULL,
    approval TEXT NOT NULL CHECK (approval IN ('none', 'pending', 'approved')),
    approved_by TEXT,
    confidence REAL,
    source TEXT NOT NULL,
    text TEXT NOT NULL,
    value TEXT,
    -- The model of its vector, if it has one.
    model TEXT
) STRICT;
CREATE INDEX entries_by_tier ON entries (tier, updated, id);
CREATE INDEX entries_by_module ON entries (tier, module, updated, id) WHERE module IS NOT NULL;
CREATE INDEX entries_by_age ON entries (updated, id);
-- What a search checks of each candidate, without its text.
CREATE INDEX entries_in_short ON entries (seq, tier, module, expires);
CREATE INDEX entries_by_end ON entries (expires) WHERE expires IS NOT NULL;
CREATE INDEX entries_by_model ON entries (tier, model, seq, module, expires);
-- The vectors of the texts, by `seq`: a signed byte for each dimension.
CREATE TABLE vectors (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, vector BLOB NOT NULL) STRICT;
-- The words of the texts, by `seq`.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = 'entries', content_rowid = 'seq', tokenize = 'porter unicode61 remove_diacritics 2'
);
-- The keys of batches that were written.
CREATE TABLE batches (key TEXT PRIMARY KEY, written INTEGER NOT NULL) STRICT, WITHOUT ROWID;
