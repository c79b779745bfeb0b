"""A small server process for the tests of launching: `health_server.py PORT [BEHAVIOUR]`.

Behaviours: `fine`; `exits` at once with status 3; `silent`, never healthy; `child`, fine with a child process that
ignores SIGTERM; `once FILE`, exits unless FILE exists, which it makes.
"""

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(9)
        body = str(os.getpid()).encode()
        self.send_response(200 if behaviour != "silent" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
port, behaviour = int(sys.argv[1]), sys.argv[2]
print("hello from the server", flush=True)
if behaviour == "exits":
    print("the model is too large", flush=True)
    sys.exit(3)
if behaviour == "once" and not Path(sys.argv[3]).exists():
    Path(sys.argv[3]).touch()
    sys.exit(4)
if behaviour == "child":
    print("child", subprocess.Popen([sys.executable, "-c", STUBBORN]).pid, flush=True)
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
