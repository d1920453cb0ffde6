"""The MCP server of `mcp_server.py` over HTTP. The path of a request is the behaviour; the port is printed."""

import http.server
import json
import select
import socket
import time

import mcp_server


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/stolen":
            print("stolen", flush=True)
        self.reply(405)

    def do_DELETE(self):
        if self.path == "/clinging":
            time.sleep(600)
        if self.path in ("/ending", "/keeping"):
            is_allowed = self.headers.get("Authorization") == "Bearer canary-of-mcp-71aa"
            words = [self.headers.get("Mcp-Session-Id"), is_allowed, self.is_awaited()]
            print(self.path, *words, flush=True)
        self.reply(405 if self.path == "/keeping" else 200)

    def is_awaited(self):
        """Whether the client still waits for the answer after a moment: it may have ended instead."""
        ready, _, _ = select.select([self.connection], [], [], 0.5)
        return not ready or self.connection.recv(1, socket.MSG_PEEK) != b""

    def do_POST(self):
        behaviour = self.path.strip("/")
        length = int(self.headers.get("Content-Length", 0))
        message = json.loads(self.rfile.read(length))
        token = self.headers.get("Authorization", "-")
        if behaviour == "stolen":
            print("stolen", flush=True)
        if behaviour == "denied" or behaviour == "picky" and token != "Bearer canary-of-mcp-71aa":
            return self.reply(401, f"wrong token {token}".encode(), Content_Type="text/plain")
        if behaviour == "challenged":
            return self.reply(401, WWW_Authenticate='Bearer realm="x"')
        if behaviour == "redirect":
            return self.reply(307, Location="/stolen")
        if behaviour == "html":
            return self.reply(200, b"<html>a page</html>", Content_Type="text/html")
        if behaviour == "nonsense":
            return self.reply(200, b"{]", Content_Type="application/json")
        if "id" not in message:
            return self.reply(202)
        is_call = message["method"] == "tools/call"
        if is_call and behaviour == "busy":
            return self.reply(503)
        if is_call and behaviour == "forgotten":
            return self.reply(404)
        if is_call and behaviour == "closed":
            self.close_connection = True
            return None
        if is_call and behaviour == "refuses":
            error = {"code": -32000, "message": f"no rights for {token}"}
            return self.reply_json(message, {"error": error})
        if behaviour == "drip" and is_call or behaviour == "endless" and is_call:
            return self.stream_forever(behaviour)
        result = mcp_server.answer(behaviour, "", message, token)
        if behaviour == "events":
            return self.reply_events({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return self.reply_json(message, {"result": result})

    def reply_json(self, message, rest):
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **rest}).encode()
        session = {"Mcp_Session_Id": "one"} if message["method"] == "initialize" else {}
        self.reply(200, body, Content_Type="application/json", **session)

    def reply_events(self, message):
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        events = "".join(f"data: {json.dumps(it)}\n\n" for it in (note, message))
        self.reply(200, events.encode(), Content_Type="text/event-stream")

    def stream_forever(self, behaviour):
        """`drip` sends comments, as one that keeps a connection alive; `endless` one event that has no end."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        piece = b": still here\n\n" if behaviour == "drip" else b"x" * (1 << 20)
        if behaviour == "endless":
            self.wfile.write(b"data: ")
        try:
            while True:
                self.wfile.write(piece)
                time.sleep(0.1 if behaviour == "drip" else 0)
        except OSError:
            return None


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
# A client that closes its connection early is part of the tests.
server.handle_error = lambda *_: None
print(server.server_address[1], flush=True)
server.serve_forever()
