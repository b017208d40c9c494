"""A stand-in for the Hugging Face hub on 127.0.0.1: the part of its HTTP interface that a model needs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml
from huggingface_hub import ModelCardData

__all__ = ["HubServer", "serve_hub"]


class HubServer(ThreadingHTTPServer):
    """Repositories in memory: the files of each commit, by repository."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commits: dict[str, list[dict[str, bytes]]] = {}
        self.fetched: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def find(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit of a revision, and its files; main is the newest."""
        found = {make_hash(repo, number): files for number, files in enumerate(self.commits.get(repo, []))}
        name = list(found)[-1] if revision == "main" and found else revision
        return (name, found[name]) if name in found else None


def make_hash(repo: str, number: int) -> str:
    return hashlib.sha1(f"{repo} {number}".encode()).hexdigest()


def describe_file(name: str, data: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}


class Handler(BaseHTTPRequestHandler):
    server: HubServer

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, value: Any, headers: dict[str, str] | None = None, *, status: int = 200) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def missing(self) -> None:
        self.answer({"error": "Not found"}, {"X-Error-Code": "RepoNotFound"}, status=404)

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self) -> None:
        body = self.read_body()
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            repo = "/".join(filter(None, (wanted.get("organization"), wanted["name"])))
            self.server.commits.setdefault(repo, [{}])
            self.answer({"url": f"{self.server.address}/{repo}", "name": repo})
        elif self.path == "/api/validate-yaml":
            ModelCardData(**yaml.safe_load(json.loads(body)["content"].split("---")[1]))
            self.answer({"errors": [], "warnings": []})
        elif re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/\w+", self.path):
            paths = [file["path"] for file in json.loads(body)["files"]]
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer({"files": [{"path": path, **mode} for path in paths]})
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/\w+", self.path):
            self.commit(match[1], [json.loads(line) for line in body.splitlines() if line.strip()])
        else:
            self.missing()

    def commit(self, repo: str, operations: list[dict[str, Any]]) -> None:
        files = dict(self.server.commits[repo][-1])
        for operation in operations:
            if operation["key"] == "file":
                files[operation["value"]["path"]] = base64.b64decode(operation["value"]["content"])
        self.server.commits[repo].append(files)
        oid = make_hash(repo, len(self.server.commits[repo]) - 1)
        self.answer(
            {"commitOid": oid, "commitUrl": f"{self.server.address}/{repo}/commit/{oid}", "success": True}
        )

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(\w+))?", path):
            found = self.server.find(match[1], match[2] or "main")
            if found is None:
                self.missing()
                return
            self.answer(
                {"id": match[1], "sha": found[0], "siblings": [{"rfilename": name} for name in found[1]]}
            )
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(\w+)", path):
            found = self.server.find(match[1], match[2])
            if found is None:
                self.missing()
                return
            self.answer([describe_file(name, data) for name, data in found[1].items()])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path):
            found = self.server.find(match[1], match[2])
            if found is None or match[3] not in found[1]:
                self.missing()
                return
            data = found[1][match[3]]
            if self.command == "GET":
                self.server.fetched.append(match[3])
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": found[0]}
            self.answer(data, headers)
        else:
            self.missing()


@contextmanager
def serve_hub() -> Iterator[HubServer]:
    """Context manager: the stand-in, which serves in a thread."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
