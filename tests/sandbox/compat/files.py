import getpass
import os
import pathlib
import tempfile
import zoneinfo
from datetime import datetime

with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir=folder) as file:
    file.write(b"x" * 1_000_000)
    file.flush()
    assert os.path.getsize(file.name) == 1_000_000
assert getpass.getuser() == "box"
assert pathlib.Path.home().is_dir()
pathlib.Path.home().joinpath("settings").write_text("x")
assert datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")).utcoffset().total_seconds() == 7200
open("/dev/null", "w").write("x")
assert len(open("/dev/urandom", "rb").read(16)) == 16
