"""A registry of packages of Python, JavaScript, Rust and Go on the loopback, over TLS.

Everything is also below `/private`, for requests with a password or a token.

Arguments: the certificate, its key, and the address to listen on. The first line of the output is JSON with the port and
the hashes of the packages. Then each request is a line.
"""

import base64
import hashlib
import io
import json
import re
import socketserver
import ssl
import sys
import tarfile
import threading
import time
import uuid
import zipfile
from http.server import BaseHTTPRequestHandler


def wheel(name, version, files, requires=()):
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {it}\n" for it in requires)
    files = dict(files)
    files[f"{info}/METADATA"] = metadata
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return packed.getvalue()


def tarball(files, folder="package"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


# The hashes differ from those of every other registry.
NONCE = f"# {uuid.uuid4()}\n"
GREETER = NONCE + "from shouter import shout\n\ndef greet(name):\n    return shout('hello ' + name)\n"
PTH = "import os; os.environ['SHOUTER_PTH'] = 'read'\n"
WHEELS = {
    "greeter-1.0-py3-none-any.whl": wheel("greeter", "1.0", {"greeter.py": GREETER}, ["shouter>=2"]),
    "greeter-9.0-py3-none-any.whl": wheel("greeter", "9.0", {"greeter.py": "raise ValueError('not locked')\n"}),
    "shouter-2.0-py3-none-any.whl": wheel(
        "shouter", "2.0", {"shouter.py": NONCE + "def shout(text):\n    return text.upper()\n", "shouter.pth": PTH}
    ),
    "slow-1.0-py3-none-any.whl": wheel("slow", "1.0", {"slow.py": NONCE}),
    "sourced-1.0.tar.gz": tarball({"setup.py": "raise SystemExit('this code must not run')\n"}),
}
MANIFEST = {
    "name": "left-step",
    "version": "1.0.0",
    "main": "index.js",
    "bin": {"left-step": "bin.js"},
    "scripts": {script: "touch /packages/tree/ran" for script in ("preinstall", "install", "postinstall", "prepare")},
}
TARBALL = tarball(
    {
        "package.json": json.dumps(MANIFEST),
        "index.js": NONCE.replace("#", "//") + "module.exports = (text) => text.slice(1);\n",
        "bin.js": "#!/usr/bin/env node\nconsole.log('stepped');\n",
    }
)
INTEGRITY = "sha512-" + base64.b64encode(hashlib.sha512(TARBALL).digest()).decode()

# A crate that needs another one, and one whose archive has a file of another crate.
CRATES = {
    "doubler-1.0.0": tarball(
        {
            "Cargo.toml": '[package]\nname = "doubler"\nversion = "1.0.0"\nedition = "2018"\n[dependencies]\nadder = "1"\n',
            "build.rs": 'fn main() { println!("cargo:rustc-env=BUILT=in-the-sandbox"); }\n',
            "src/lib.rs": NONCE.replace("#", "//")
            + 'pub const BUILT: &str = env!("BUILT");\npub fn double(x: u32) -> u32 { adder::add(x, x) }\n',
        },
        "doubler-1.0.0",
    ),
    "adder-1.2.0": tarball(
        {
            "Cargo.toml": '[package]\nname = "adder"\nversion = "1.2.0"\nedition = "2018"\n',
            "src/lib.rs": NONCE.replace("#", "//") + "pub fn add(x: u32, y: u32) -> u32 { x + y }\n",
        },
        "adder-1.2.0",
    ),
    "thief-1.0.0": tarball({"src/lib.rs": NONCE.replace("#", "//")}, "adder-1.2.0"),
}


def module(path, version, files):
    packed = io.BytesIO()
    files = {f"{path}@{version}/{name}": text for name, text in files.items()}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    mod = files[f"{path}@{version}/go.mod"]
    base = f"{path}/@v/{version}"
    found = {
        f"{base}.info": json.dumps({"Version": version, "Time": "2020-01-01T00:00:00Z"}).encode(),
        f"{base}.mod": mod.encode(),
        f"{base}.zip": packed.getvalue(),
    }
    sums = [f"{path} {version} {go_hash(files)}", f"{path} {version}/go.mod {go_hash({'go.mod': mod})}"]
    return found, sums


def go_hash(files):
    lines = "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(files.items()))
    return "h1:" + base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()


GO_NOTE = NONCE.replace("#", "//")
HALVER, HALVER_SUMS = module(
    "example.com/Halver",
    "v1.0.0",
    {
        "go.mod": "module example.com/Halver\n\ngo 1.18\n\nrequire example.com/divider v1.1.0\n",
        "halver.go": GO_NOTE + "package halver\n\nimport \"example.com/divider\"\n\nfunc Half(x int) int { return divider.Divide(x, 2) }\n",
    },
)
DIVIDER, DIVIDER_SUMS = module(
    "example.com/divider",
    "v1.1.0",
    {
        "go.mod": "module example.com/divider\n\ngo 1.18\n",
        "divider.go": GO_NOTE + "package divider\n\nfunc Divide(x, y int) int { return x / y }\n",
    },
)
MODULES = {**HALVER, **DIVIDER}

# The credentials that `/private` asks for, as they arrive.
ACCEPTED = (
    "Basic " + base64.b64encode(b"me:hunter2-of-the-index").decode(),
    "Bearer token-of-the-scope-0123",
    "token-of-the-crates-0123",
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        # One write, because requests are answered side by side.
        sys.stdout.write(f"{self.path}\n")
        sys.stdout.flush()
        parts = self.path.strip("/").split("/")
        origin = f"https://localhost:{self.server.server_address[1]}"
        if parts[0] == "private":
            if self.headers.get("Authorization") not in ACCEPTED:
                self.answer("text/plain", b"who are you?", status=401)
                return
            parts, origin = parts[1:], f"{origin}/private"
        if parts == ["simple", "slow"] and STALLED.acquire(blocking=False):
            time.sleep(3600)
        if parts[0] == "simple" and len(parts) == 2:
            files = [name for name in WHEELS if name.startswith(parts[1] + "-")]
            links = "".join(f'<a href="{origin}/files/{name}">{name}</a>\n' for name in files)
            self.answer("text/html", f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode(), bool(files))
        elif parts[0] == "files":
            self.answer("application/octet-stream", WHEELS.get(parts[1], b""), parts[1] in WHEELS)
        elif parts == ["left-step"]:
            dist = {"tarball": f"{origin}/left-step/-/left-step-1.0.0.tgz", "integrity": INTEGRITY}
            versions = {"1.0.0": {**MANIFEST, "dist": dist, "hasInstallScript": True}}
            document = {"name": "left-step", "versions": versions, "dist-tags": {"latest": "1.0.0"}}
            self.answer("application/json", json.dumps(document).encode())
        elif parts[-3:] == ["left-step", "-", "left-step-1.0.0.tgz"]:
            self.answer("application/octet-stream", TARBALL)
        elif parts[0].lower() == "@team%2fleft-step":
            dist = {"tarball": f"{origin}/@team/left-step/-/left-step-1.0.0.tgz", "integrity": INTEGRITY}
            versions = {"1.0.0": {**MANIFEST, "name": "@team/left-step", "dist": dist}}
            document = {"name": "@team/left-step", "versions": versions, "dist-tags": {"latest": "1.0.0"}}
            self.answer("application/json", json.dumps(document).encode())
        elif parts == ["crates", "config.json"]:
            self.answer("application/json", json.dumps({"dl": f"{origin}/crates/dl", "auth-required": True}).encode())
        elif parts[:2] == ["crates", "dl"] and len(parts) == 5:
            name = f"{parts[2]}-{parts[3]}"
            self.answer("application/gzip", CRATES.get(name, b""), name in CRATES)
        elif parts[0] == "go":
            # Capital letters arrive as in `%21halver`.
            path = re.sub("%21([a-z])", lambda it: it[1].upper(), "/".join(parts[1:]))
            self.answer("application/octet-stream", MODULES.get(path, b""), path in MODULES)
        else:
            self.answer("text/plain", b"", False)

    def answer(self, kind, content, is_found=True, status=200):
        self.send_response(status if is_found else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def get_request(self):
        client, address = super().get_request()
        client.settimeout(60)
        return CONTEXT.wrap_socket(client, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_):
        pass


# The first request for the package `slow` gets no answer.
STALLED = threading.Lock()
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(sys.argv[1], sys.argv[2])
with Server((sys.argv[3], 0), Handler) as server:
    wheels = {name: hashlib.sha256(content).hexdigest() for name, content in WHEELS.items()}
    about = {
        "port": server.server_address[1],
        "wheels": wheels,
        "integrity": INTEGRITY,
        "crates": {name: hashlib.sha256(content).hexdigest() for name, content in CRATES.items()},
        "sums": HALVER_SUMS + DIVIDER_SUMS,
    }
    print(json.dumps(about), flush=True)
    server.serve_forever()
