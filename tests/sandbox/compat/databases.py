import sqlite3

database = sqlite3.connect("test.db")
database.execute("pragma journal_mode = wal")
database.execute("create table t (x)")
database.executemany("insert into t values (?)", [(number,) for number in range(1000)])
database.commit()
assert database.execute("select sum(x) from t").fetchone() == (499500,)
