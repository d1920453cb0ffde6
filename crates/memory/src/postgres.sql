-- Format 1. Texts of others are bytes or JSON, because a text of the server cannot have a NUL.

-- One row for each entry; `seq` is the order in which entries were first written.
CREATE TABLE entries (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    tier bytea NOT NULL,
    module bytea,
    updated bigint NOT NULL, -- microseconds since 1970
    expires bigint,          -- null for entries that stay
    pending boolean NOT NULL, -- whether a person has to look at it
    length integer NOT NULL, -- the number of words of its text
    entry text NOT NULL,     -- all of it, as JSON
    model bytea              -- that of its vector, if it has one
);
CREATE INDEX entries_by_tier ON entries (tier, updated, id);
CREATE INDEX entries_by_module ON entries (tier, module, updated, id) WHERE module IS NOT NULL;
CREATE INDEX entries_by_age ON entries (updated, id);
CREATE INDEX entries_by_end ON entries (expires) WHERE expires IS NOT NULL;

CREATE INDEX entries_by_model ON entries (tier, model, seq) INCLUDE (module, expires);

-- The vectors of the texts: a signed byte for each dimension. They cannot be compressed.
CREATE TABLE vectors (
    entry bigint PRIMARY KEY, -- `seq`
    id text COLLATE "C" NOT NULL,
    vector bytea NOT NULL
);
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;

-- The words of the texts, by their stems. An index of this kind ends a search at any number of entries, from the
-- newest on; a GIN index finds all of them first.
CREATE TABLE words (
    word text COLLATE "C" NOT NULL,
    entry bigint NOT NULL,  -- `seq`
    count integer NOT NULL, -- how often the text has it
    -- Those of the entry, so that a search reads only this table.
    length integer NOT NULL,
    tier bytea NOT NULL,
    module bytea,
    expires bigint
);
CREATE UNIQUE INDEX words_by_word ON words (word, entry);
CREATE INDEX words_by_entry ON words (entry);

-- The number of entries, and of the words of all texts: the averages that a ranking needs. A transaction that writes
-- locks this row first, so one follows the other, as in SQLite.
CREATE TABLE totals (entries bigint NOT NULL, words bigint NOT NULL);
INSERT INTO totals VALUES (0, 0);

-- The keys of batches that were written.
CREATE TABLE batches (key bytea PRIMARY KEY, written bigint NOT NULL);

-- The stem of a word, without accents: the same as in SQLite. Unlike `english`, it drops no word.
CREATE TEXT SEARCH DICTIONARY stems (TEMPLATE = snowball, LANGUAGE = porter);
CREATE FUNCTION stem(word text) RETURNS text STABLE LANGUAGE sql AS $$
    SELECT (ts_lexize('stems', regexp_replace(normalize(word, NFKD), '[\u0300-\u036f]', '', 'g')))[1]
$$;
