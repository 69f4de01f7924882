#!/usr/bin/env python3
"""A web server on 127.0.0.1 that answers like the Hugging Face hub.

Usage: hub_server.py ROOT PORT_FILE LOG_FILE [PEM_FILE]

With a certificate and its key in PEM_FILE it speaks https. Serves the models ROOT/ORG/NAME/*. Its port goes into PORT_FILE, a line for
each request into LOG_FILE: METHOD PATH RANGE AUTHORIZATION. Large files (those
ending in .safetensors or .gguf) are described by their SHA-256 and redirected to another
path, all others by their git blob id, as the hub does. A file ROOT/ORG/NAME.api
is the description of a model instead, byte for byte; ROOT/ORG/NAME.location is
where requests for its files are redirected to. Some organisations behave badly:

  corrupt   one byte of each large file is wrong
  short     the first answer for each large file ends half way
  cut       no answer for a large file says how long it is, nor has more than
            70,000 bytes
  stuck     nothing comes of large files from their middle on
  long      large files do not end
  html      a page with status 200 instead of each large file
  slow      large files take three seconds
  endless   the description does not end
  norange   ranges are ignored
  gated     403 for files and 401 for the description, without a token
"""

import hashlib
import json
import os
import re
import ssl
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = (".safetensors", ".gguf")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def describe(directory):
    """The hub's answer about a model, with every key a reader may trip over."""
    siblings = []
    names = [os.path.relpath(os.path.join(at, name), directory)
             for at, _, files in os.walk(directory) for name in files]
    for name in sorted(names):
        with open(os.path.join(directory, name), "rb") as file:
            data = file.read()
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"rfilename": name, "size": len(data), "blobId": blob}
        if name.endswith(LARGE):
            entry["blobId"] = "f" * 40
            entry["lfs"] = {
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
                "pointerSize": 135,
            }
        siblings.append(entry)
    return {
        "_id": "1",
        "private": False,
        "cardData": {"sha": "not this one", "siblings": [{"rfilename": "x"}]},
        "config": {"chat_template": '{"rfilename":"evil","sha":"e"}, \\"[]{}'},
        "sha": COMMIT,
        "tags": [],
        "siblings": siblings,
        "usedStorage": 1,
    }


class Hub(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    root = ""
    log_path = ""
    lock = threading.Lock()
    shortened = set()

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        with self.lock, open(self.log_path, "a", encoding="utf-8") as log:
            print(
                self.command,
                self.path,
                self.headers.get("Range", "-"),
                self.headers.get("Authorization", "-"),
                file=log,
            )
        path = self.path.partition("?")[0]
        match = re.fullmatch(r"/api/models/([^/]+)/([^/]+)/revision/([^/]+)", path)
        if match:
            self.answer_api(*match.groups())
            return
        match = re.fullmatch(r"/([^/]+)/([^/]+)/resolve/([^/]+)/(.+)", path)
        if match:
            org, name, revision, file_name = match.groups()
            file_name = urllib.parse.unquote(file_name)
            self.answer_resolve(org, name, revision, file_name)
            return
        match = re.fullmatch(r"/cdn/([^/]+)/([^/]+)/(.+)", path)
        if match:
            org, name, file_name = match.groups()
            self.answer_file(org, name, urllib.parse.unquote(file_name))
            return
        self.answer(404, b"not found")

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_endless(self, piece):
        """An answer without a length that goes on until nobody reads it."""
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                self.wfile.write(piece)
        except OSError:
            pass

    def answer_part(self, data, begin, end):
        """An answer without a length, and perhaps shorter than it should be."""
        self.send_response(206 if begin else 200)
        if begin:
            last = len(data) - 1
            self.send_header("Content-Range", f"bytes {begin}-{last}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[begin:end])
        self.close_connection = True

    def override(self, org, name, suffix):
        """The content of ROOT/ORG/NAME.SUFFIX, or None."""
        try:
            with open(os.path.join(self.root, org, name + suffix), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def answer_api(self, org, name, revision):
        directory = os.path.join(self.root, org, name)
        raw = self.override(org, name, ".api")
        if raw is not None:
            self.answer(200, raw)
        elif org == "endless":
            self.answer_endless(b'{"sha":"' + COMMIT.encode() + b'",' * 1000)
        elif org == "gated" and "Authorization" not in self.headers:
            self.answer(401, b"Invalid username or password.")
        elif not os.path.isdir(directory) or revision == "absent":
            self.answer(404, b'{"error":"Repository not found"}')
        else:
            body = json.dumps(describe(directory), separators=(",", ":"))
            self.answer(200, body.encode())

    def answer_resolve(self, org, name, revision, file_name):
        location = self.override(org, name, ".location")
        if location is not None:
            # as it is: http.server takes text
            self.answer(302, b"", {"Location": location.decode("latin-1")})
        elif org == "gated":
            self.answer(403, b"Access to this model is restricted.")
        elif revision != COMMIT:
            self.answer(404, b"Revision not found")
        elif file_name.endswith(LARGE):
            where = f"/cdn/{org}/{name}/{urllib.parse.quote(file_name)}"
            self.answer(302, b"Found", {"Location": where})
        else:
            self.answer_file(org, name, file_name)

    def answer_file(self, org, name, file_name):
        path = os.path.join(self.root, org, name, file_name)
        if not os.path.isfile(path):
            self.answer(404, b"Entry not found")
            return
        with open(path, "rb") as file:
            data = bytearray(file.read())
        large = file_name.endswith(LARGE)
        if org == "corrupt" and large:
            data[len(data) // 2] ^= 1
        begin, status, headers = 0, 200, {"Accept-Ranges": "bytes"}
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match and org != "norange":
            begin, status = int(match.group(1)), 206
            if begin >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        if org == "short" and large and path not in self.shortened:
            self.shortened.add(path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        if large and org in BAD_FILES:
            BAD_FILES[org](self, data, begin)
            return
        self.answer(status, bytes(data[begin:]), headers)

    def answer_slow(self, data, begin):
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        for i in range(3):
            part = (len(data) - begin) // 3
            self.wfile.write(data[begin + i * part :][: part if i < 2 else None])
            self.wfile.flush()
            time.sleep(1)


BAD_FILES = {
    "cut": lambda hub, data, begin: hub.answer_part(data, begin, begin + 70000),
    "stuck": lambda hub, data, begin: hub.answer_part(data, begin, len(data) // 2),
    "long": lambda hub, data, begin: hub.answer_endless(bytes(65536)),
    "html": lambda hub, data, begin: hub.answer(200, b"<html>Log in first</html>"),
    "slow": Hub.answer_slow,
}


def main():
    Hub.root, port_file, Hub.log_path = sys.argv[1:4]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    if len(sys.argv) > 4:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[4])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with open(port_file + ".tmp", "w", encoding="utf-8") as file:
        print(server.server_address[1], file=file)
    os.rename(port_file + ".tmp", port_file)
    # Should whoever started it be unable to stop it, it ends by itself.
    watchdog = threading.Timer(600, os._exit, [1])
    watchdog.daemon = True
    watchdog.start()
    server.serve_forever()


if __name__ == "__main__":
    main()
