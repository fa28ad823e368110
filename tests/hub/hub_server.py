"""A small Hub on loopback: it speaks enough of the HTTP protocol for the real `huggingface_hub` client."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml


WRITE_TOKEN, READ_TOKEN = "hf_write", "hf_read"


@dataclass
class Repository:
    private: bool = False
    revisions: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})
    commits: list[tuple[str, str, list[str]]] = field(default_factory=list)  # revision, message, paths

    def sha(self, revision: str) -> str:
        return hashlib.sha1(f"{revision}, {len(self.commits)} commits".encode()).hexdigest()


@dataclass
class Fault:
    """The next `times` requests whose method and path match `pattern` fail: with a status, or a lost connection."""

    pattern: str
    status: int | None = None
    times: int = 1
    after_handling: bool = False  # the work is done, only the answer gets lost


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # large files by their sha256
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.lock = threading.RLock()

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        return self.repositories[repo_id].revisions[revision]

    def fault_for(self, request: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.pattern, request):
                    fault.times -= 1
                    return fault
        return None

    def handle_error(self, request, client_address):
        pass  # connections are dropped on purpose


@contextlib.contextmanager
def hub_server():
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class Refused(Exception):
    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *args):
        pass

    def respond(self):
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = unquote(urlsplit(self.path).path)
        request = f"{self.command} {path}"
        self.server.requests.append(request)
        fault = self.server.fault_for(request)
        if fault is not None and not fault.after_handling:
            return self.fail(fault)
        try:
            with self.server.lock:
                status, payload, headers = self.route(path)
        except Refused as refused:
            status, payload, headers = refused.status, {"error": str(refused)}, {"X-Error-Message": str(refused)}
            if refused.code:
                headers["X-Error-Code"] = refused.code
        if fault is not None:
            return self.fail(fault)
        self.send(status, payload, headers)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = respond

    def fail(self, fault: Fault) -> None:
        if fault.status is None:
            self.close_connection = True
            self.connection.close()
        else:
            self.send(fault.status, {"error": "injected"}, {"Retry-After": "0"} if fault.status == 429 else {})

    def send(self, status: int, payload, headers: dict[str, str]) -> None:
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def route(self, path: str):
        routes = {
            r"/api/repos/create": self.create_repository,
            r"/api/validate-yaml": self.validate_yaml,
            r"/api/models/(.+?)/preupload/(.+)": self.preupload,
            r"/api/models/(.+?)/commit/(.+)": self.commit,
            r"/api/models/(.+?)/branch/(.+)": self.create_branch,
            r"/api/models/(.+?)/tree/((?:refs/pr/)?[^/]+)(?:/(.*))?": self.tree,
            r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?": self.model_info,
            r"/(.+?)\.git/info/lfs/objects/batch": self.large_file_batch,
            r"/lfs/([0-9a-f]{64})": self.put_large_file,
            r"/(.+?)/resolve/((?:refs/pr/)?[^/]+)/(.+)": self.resolve,
        }
        for pattern, action in routes.items():
            match = re.fullmatch(pattern, path)
            if match:
                return action(*match.groups())
        raise Refused(404, f"no route for {path}")

    def check_token(self, write: bool = True) -> None:
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        if token not in (WRITE_TOKEN, READ_TOKEN):
            raise Refused(401, "Invalid username or password.")
        if write and token != WRITE_TOKEN:
            raise Refused(403, "You don't have the rights to write here.")

    def repository(self, repo_id: str) -> Repository:
        repository = self.server.repositories.get(repo_id)
        if repository is None:
            raise Refused(404, "Repository not found", "RepoNotFound")
        if repository.private:
            self.check_token(write=False)
        return repository

    def revision(self, repo_id: str, revision: str | None) -> dict[str, bytes]:
        repository = self.repository(repo_id)
        revision = revision or "main"
        for name, files in repository.revisions.items():
            if revision in (name, repository.sha(name)):
                return files
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def create_repository(self):
        self.check_token()
        wanted = json.loads(self.body)
        repo_id = "/".join(filter(None, (wanted.get("organization") or "user", wanted["name"])))
        url = {"url": f"{self.server.url}/{repo_id}"}
        if repo_id in self.server.repositories:
            return 409, url, {}
        self.server.repositories[repo_id] = Repository(private=wanted.get("visibility") == "private")
        return 200, url, {}

    def create_branch(self, repo_id: str, branch: str):
        self.check_token()
        revisions = self.repository(repo_id).revisions
        if branch in revisions:
            raise Refused(409, "Reference already exists")
        revisions[branch] = dict(revisions["main"])
        return 200, {}, {}

    def validate_yaml(self):
        try:
            check_front_matter(json.loads(self.body)["content"])
        except Refused as refused:
            return 400, {"errors": [{"message": str(refused)}], "warnings": []}, {}
        return 200, {"errors": [], "warnings": []}, {}

    def preupload(self, repo_id: str, revision: str):
        self.check_token()
        present = self.revision(repo_id, revision)
        files = []
        for wanted in json.loads(self.body)["files"]:
            path = wanted["path"]
            is_large = path.endswith((".safetensors", ".png")) or wanted["size"] > 10_000_000
            oid = oid_of(present[path], is_large) if path in present else None
            mode = "lfs" if is_large else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return 200, {"files": files}, {}

    def large_file_batch(self, repo_id: str):
        self.check_token()
        self.repository(repo_id)
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.server.objects:
                entry["actions"] = {"upload": {"href": f"{self.server.url}/lfs/{wanted['oid']}"}}
            objects.append(entry)
        return 200, {"transfer": "basic", "objects": objects}, {}

    def put_large_file(self, oid: str):
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Refused(400, "the content does not have this hash")
        self.server.objects[oid] = self.body
        return 200, {}, {}

    def commit(self, repo_id: str, revision: str):
        self.check_token()
        repository = self.repository(repo_id)
        self.revision(repo_id, revision)
        message, changes = "", {}
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                if value["oid"] not in self.server.objects:
                    raise Refused(400, f"{value['path']} was not uploaded")
                changes[value["path"]] = self.server.objects[value["oid"]]
            else:
                raise Refused(400, f"{entry['key']} is not known here")
        if "README.md" in changes:
            check_front_matter(changes["README.md"].decode())
        pull_request = None
        if "create_pr=1" in urlsplit(self.path).query:
            number = 1 + sum(name.startswith("refs/pr/") for name in repository.revisions)
            repository.revisions[f"refs/pr/{number}"] = dict(repository.revisions[revision])
            revision = f"refs/pr/{number}"
            pull_request = f"{self.server.url}/{repo_id}/discussions/{number}"
        repository.revisions[revision].update(changes)
        repository.commits.append((revision, message, sorted(changes)))
        sha = repository.sha(revision)
        url = f"{self.server.url}/{repo_id}/commit/{sha}"
        return 200, {"commitUrl": url, "commitOid": sha, "pullRequestUrl": pull_request}, {}

    def model_info(self, repo_id: str, revision: str | None):
        files = self.revision(repo_id, revision)
        card = None
        with contextlib.suppress(KeyError, yaml.YAMLError):
            card = front_matter(files["README.md"].decode())
        siblings = [{"rfilename": path} for path in sorted(files)]
        sha = self.repository(repo_id).sha(revision or "main")
        return 200, {"id": repo_id, "sha": sha, "siblings": siblings, "cardData": card}, {}

    def tree(self, repo_id: str, revision: str, folder: str | None):
        files = self.revision(repo_id, revision)
        prefix = f"{folder}/" if folder else ""
        found = [
            {"type": "file", "path": path, "size": len(content), "oid": oid_of(content, False)}
            for path, content in sorted(files.items())
            if path.startswith(prefix)
        ]
        if prefix and not found:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        return 200, found, {}

    def resolve(self, repo_id: str, revision: str, path: str):
        files = self.revision(repo_id, revision)
        if path not in files:
            raise Refused(404, "Entry not found", "EntryNotFound")
        name = next(name for name, known in self.repository(repo_id).revisions.items() if known is files)
        headers = {"ETag": f'"{oid_of(files[path], False)}"', "X-Repo-Commit": self.repository(repo_id).sha(name)}
        return 200, files[path], headers


def oid_of(content: bytes, is_large: bool) -> str:
    if is_large:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def front_matter(text: str) -> dict:
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return yaml.safe_load(match.group(1)) if match else {}


def check_front_matter(text: str) -> None:
    """What the Hub checks that matters here: the block parses, and `license` is one that it knows."""
    try:
        data = front_matter(text)
    except yaml.YAMLError as error:
        raise Refused(400, f"Invalid YAML: {error}") from error
    if not re.fullmatch(r"[a-z0-9.-]+", str(data.get("license", "other"))):
        raise Refused(400, f'"license" is not a known license: {data["license"]}')
