"""Two workers never produce the same random values, though both are copies of one process."""

import json
import subprocess

from tests.agent.conftest import PATIENT, Agent
from tests.support.program import PYTHON
from tests.support.servers import OK, Server, request, send

# Forks as the agent does, from a process that has loaded and used everything, and prints what each child draws.
_CHILDREN = """
import json, os, random, secrets, ssl, sys, tempfile, uuid
from xapi_cli.agent import preload

directory = os.path.dirname(sys.argv[1])

def client_random():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()[11:43].hex()  # behind the heads of the record and the message, and the version

def values():
    return {
        "os.urandom": os.urandom(16).hex(),
        "random": random.random(),
        "secrets": secrets.token_hex(),
        "uuid4": str(uuid.uuid4()),
        "ssl.RAND_bytes": ssl.RAND_bytes(16).hex(),
        "TLS": client_random(),
        "tempfile": next(tempfile._get_candidate_names()),
    }

context = ssl.create_default_context()
preload.load(directory)
values()  # everything has a state that a child could inherit
for _ in range(3):
    sys.stdout.flush()
    if os.fork() == 0:
        preload.warm_up(directory)
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps(values()) + "\\n")
        os._exit(0)
    os.wait()
"""


def test_forked_workers_draw_different_random_values(agent: Agent) -> None:
    found = agent.xapi.home / "found"
    subprocess.run(
        [PYTHON, "-Pc", _CHILDREN, found], env=agent.xapi.environment(), timeout=60, check=True, capture_output=True
    )
    children = [json.loads(line) for line in found.read_text().splitlines()]

    assert len(children) == 3
    for name in children[0]:
        assert len({each[name] for each in children}) == 3, name


def test_the_boundaries_of_uploads_differ_between_workers(agent: Agent) -> None:
    (agent.xapi.home / "file").write_text("content")
    with Server([request(), send(OK)]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}
        for _ in range(4):
            process = agent.xapi.start("request", "/upload", "file@file", env=env, argv=PATIENT)
            assert process.wait(30) == 0
        received = server.received

    assert agent.status()["warm"] == 4
    boundaries = {each.partition(b"boundary=")[2].partition(b"\r\n")[0] for each in received}
    assert (len(boundaries), b"" in boundaries) == (4, False)
