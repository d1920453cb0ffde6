import asyncio
import http.server
import socket
import threading
import urllib.request


async def echo(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(echo, "localhost", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    assert (await process.communicate())[0] == b"hi\n"
    await asyncio.start_unix_server(echo, "/tmp/socket")


asyncio.run(main())
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert urllib.request.urlopen(f"http://localhost:{server.server_port}/").status == 200
socket.socket(socket.AF_UNIX).bind("\0abstract")
assert socket.gethostname() == "sandbox"
