# collect: result.xml
# collect: pipe
# collect: folder
# The host must not follow the link, wait at the pipe, or walk the folder.
from attack import *

os.symlink(env("HOST_SECRET"), "result.xml")
os.mkfifo("pipe")
os.makedirs("folder/inner")
open("folder/inner/file", "w").write("x")
held("planted")
