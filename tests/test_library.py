"""`open_client`: each test runs a Python program that uses it, as a process."""

import gzip
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply
from tests.support.library_program import Program, with_token
from tests.support.program import PYTHON, Outcome, Xapi
from tests.support.servers import OK, Server, close, hang, request, send, serve
from xapi_cli.features.sandbox import MASTER, Sandbox

FAKES = Path(__file__).parent / "support" / "keyrings"


@pytest.fixture
def program(xapi: Xapi) -> "Program":
    """A Python program that runs in the home directory of the test."""
    return Program(xapi)


def test_the_client_logs_in_automatically_and_stores_the_token_for_commands(program: Program, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_MAX_TIME": "0.001"}  # which limits commands only
    ran = program(
        """
        with xapi_cli.open_client() as client:
            print(client.get("/x-api/me").json()["email"])
            print(client.post("x-api/echo", params={"a": "b c"}, json={"n": 1}).json()["json"])
            print(client.get(f"{client.base_url}/x-api/me").status_code)
        """,
        env,
    )

    assert ran == Outcome(0, f"{MASTER.email}\n{{'n': 1}}\n200\n")
    assert program.xapi("request", "/x-api/me", "--no-login", env=sandbox.settings).code == 0
    assert sandbox.logins == 1


def test_threads_with_an_invalid_token_make_one_login_and_lose_no_request(program: Program) -> None:
    with Api(lives=300) as api:
        ran = program(
            """
            client, statuses = xapi_cli.open_client(), []
            def work(number):
                for each in range(20):
                    statuses.append(client.post(f"/{number}/{each}", content=b"x" * number).status_code)
            threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            client.close()
            print(len(statuses), set(statuses))
            """,
            api.settings,
        )

        assert ran == Outcome(0, "400 {200}\n")
        assert api.logins == 2
        assert all(len(received.body) == int(received.path.split("/")[1]) for received in api.requests)


def test_a_body_that_can_be_read_only_once_is_resent_after_a_401(program: Program) -> None:
    with Api(lives=1) as api:
        ran = program(
            """
            with xapi_cli.open_client() as client:
                client.get("/")
                print(client.post("/", content=iter([b"a", b"bc"])).status_code)
            """,
            api.settings,
        )
        bodies = [received.body for received in api.requests]

    assert (ran.out, bodies) == ("200\n", [b"", b"abc", b"", b"abc"]), ran  # the GET shows that the token is invalid


@pytest.mark.parametrize("redirects", [10, 11])
def test_as_many_redirects_are_followed_as_by_commands(program: Program, redirects: int) -> None:
    def respond(received: ReceivedRequest) -> Reply:
        api.lives = None  # the token of the next login remains valid
        left = int(received.path.removeprefix("/"))
        target = f"//user:info@{received.headers['host']}/{left - 1}"
        return Reply(b"", 302, (("Location", target),)) if left else Reply()

    with Api(respond, lives=1) as api:
        ran = program(
            f"""
            with xapi_cli.open_client() as client:
                client.get("/0")
                try:
                    print(client.get("/{redirects}", follow_redirects=True).text)
                except RedirectError as error:
                    print(error)
            """,
            api.settings,
        )
        command = program.xapi("request", f"/{redirects}", env=api.settings)

    assert ran == Outcome(0, command.err.removeprefix("xapi: error: ") or command.out + "\n")
    assert (api.rejected, command.code) == (2, 3 if redirects == 11 else 0)


def test_no_request_is_sent_to_another_origin(program: Program) -> None:
    with Server([serve()]) as elsewhere:
        away = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.url}/x\r\nContent-Length: 0\r\n\r\n".encode()
        with Server([serve(away)]) as server:
            code = f"""
            with xapi_cli.open_client() as client:
                for attempt in (
                    lambda: client.get("{elsewhere.url}/x"),
                    lambda: client.get("//{elsewhere.url}/x"),
                    lambda: client.get("/../x"),
                    lambda: client.send(httpx.Request("GET", "{elsewhere.url}/x"), auth=client.auth),
                    lambda: client.get("/away", follow_redirects=True),
                ):
                    try:
                        print(attempt())
                    except XapiError as error:
                        print(type(error).__name__, error.exit_code)
                        print(error)
            """
            ran = program(code, with_token(server))
        reached = elsewhere.received

    assert ran.out.splitlines()[::2] == ["UsageError 2"] * 4 + ["RedirectError 3"], ran
    assert "canary" not in ran.out
    assert reached == []


def test_methods_that_commands_refuse_are_not_sent(program: Program) -> None:
    with Server([serve()]) as server:
        code = """
        with xapi_cli.open_client() as client:
            for method in ("TRACE", "CONNECT"):
                for headers in ({}, {"Authorization": "Basic x"}):  # with the token, and without it
                    try:
                        client.request(method, "/", headers=headers)
                    except UsageError as error:
                        print(error.message)
        """
        ran = program(code, with_token(server))

    refused = [f"xapi does not send {method} requests\n" for method in ("TRACE", "TRACE", "CONNECT", "CONNECT")]
    assert ran == Outcome(0, "".join(refused))
    assert server.received == []


def test_failures_raise_exceptions_of_xapi(program: Program) -> None:
    packed = gzip.compress(b"hello")
    cut = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (len(packed) - 4) + packed[:-4]
    whole = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    steps = [request(), send(whole), request(), send(head), request(), send(cut)]
    with Server(steps, [request(), close()], [request()]) as server:
        ran = program(
            """
            with xapi_cli.open_client(timeout=10) as client:
                print(client.get("/").text, client.head("/").status_code)
                for method, path in [("GET", "/cut"), ("POST", "/gone")]:
                    try:
                        client.request(method, path)
                    except NetworkError as error:
                        print(error)
            """,
            with_token(server),
        )

    assert (ran.code, ran.err) == (0, ""), ran
    assert ran.out.splitlines()[0] == "hello 200"
    assert "the gzip body was truncated" in ran.out.splitlines()[1]
    assert "may have been processed" in ran.out.splitlines()[2]


FAILURES: list[tuple[str, dict[str, str | None], str]] = [
    ("refused", {"XAPI_PASSWORD": "wrong"}, "LoginRefused 10"),
    ("no password", {"XAPI_PASSWORD": None}, "LoginNeeded 10"),
    ("an invalid supplied token", {"XAPI_TOKEN": "dead"}, "TokenRejected 10"),
    ("no base URL", {"XAPI_BASE_URL": None}, "UsageError 2"),
    ("no username", {"XAPI_USERNAME": None}, "UsageError 2"),
    ("an unknown profile", {"XAPI_PROFILE": "nope"}, "UsageError 2"),
]


def test_an_exception_has_the_exit_code_of_the_same_failure_in_a_command(program: Program, sandbox: Sandbox) -> None:
    settings: dict[str, str | None] = {**sandbox.settings, "XAPI_PASSWORD": MASTER.password}
    environs = [program.xapi.environment(settings | env) for _, env, _ in FAILURES]
    code = f"""
    import os
    for environ in {environs}:
        os.environ.clear()
        os.environ.update(environ)
        try:
            with xapi_cli.open_client() as client:
                client.get("/x-api/me")
        except XapiError as error:
            print(type(error).__name__, error.exit_code)
    """

    assert program(code, settings) == Outcome(0, "".join(f"{error}\n" for _, _, error in FAILURES))


def test_a_rejected_fresh_token_raises_token_rejected_after_one_login(program: Program) -> None:
    with Api(lives=0) as api:
        api.accepts = lambda authorization: False  # type: ignore[method-assign]  # a server that accepts nothing
        ran = program(
            """
            with xapi_cli.open_client() as client:
                for _ in range(3):
                    try:
                        client.get("/")
                    except TokenRejected as error:
                        print(error)
            """,
            api.settings,
        )

        assert (ran.out.count("responded with 401; the token was fresh"), api.logins) == (3, 1), ran


def test_the_client_never_prompts_even_on_a_terminal(xapi: Xapi, sandbox: Sandbox) -> None:
    code = "import xapi_cli; xapi_cli.open_client().get('/x-api/me')"
    env = {**sandbox.settings, "XAPI_PASSWORD": None}
    with xapi.on_terminal("-c", code, program=PYTHON, env=env) as terminal:
        assert terminal.wait() == 1
        assert b"LoginNeeded" in terminal.seen
        assert b"Password" not in terminal.seen


def test_an_authorization_header_of_the_caller_disables_token_and_login(program: Program) -> None:
    with Api() as api:
        code = "print(xapi_cli.open_client().get('/', headers={'Authorization': 'Basic x'}).status_code)"
        assert program(code, api.settings) == Outcome(0, "401\n")
        assert [received.headers["authorization"] for received in api.requests] == ["Basic x"]
        assert api.logins == 0


def test_overrides_are_settings_and_other_names_raise_an_error(program: Program, sandbox: Sandbox) -> None:
    code = f"""
    client = xapi_cli.open_client(base_url="{sandbox.base_url}", username="{MASTER.email}", storage="none", timeout=7)
    print(client.get("/x-api/me").status_code, client.timeout.read)
    try:
        xapi_cli.open_client(pasword="x")
    except TypeError as error:
        print(error)
    try:
        xapi_cli.nonsense
    except AttributeError as error:
        print(error)
    """
    ran = program(code, {"XAPI_PASSWORD": MASTER.password})

    assert ran.out.splitlines() == [
        "200 7.0",
        (
            "open_client() has no setting 'pasword'; "
            "valid settings: base_url, username, storage, timeout, ca_bundle, read_only, log"
        ),
        "module 'xapi_cli' has no attribute 'nonsense'",
    ], ran
    assert not (program.xapi.state / "tokens").exists()


def test_failures_name_parameters_and_not_flags_except_in_commands(program: Program) -> None:
    waiting = [request(), hang()]
    truncated = [request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), hang()]
    with Server(waiting, truncated) as server:
        ran = program(
            """
            def show(call):
                try:
                    call()
                except XapiError as error:
                    print(error)

            show(lambda: xapi_cli.open_client(timeout="soon"))
            show(lambda: xapi_cli.open_client("nowhere"))
            client = xapi_cli.open_client(timeout=0.5)
            show(lambda: client.get("https://other.test/"))
            show(lambda: client.get("/"))

            def read():
                with xapi_cli.open_client(timeout=90).stream("GET", "/", timeout=0.5) as response:
                    response.read()

            show(read)
            """,
            with_token(server),
        )

    lines = ran.out.splitlines()
    assert lines[0].startswith("timeout: 'soon' is not a valid duration; "), ran
    assert lines[1] == "profile 'nowhere' does not exist; create it with `xapi login --profile nowhere`"
    assert lines[2].endswith("; use only the path, or set base_url")
    assert [line.rpartition("; ")[2] for line in lines[3:]] == ["raise timeout to wait longer"] * 2


def test_streamed_responses_are_not_read_ahead(program: Program) -> None:
    with Server([request(), send(OK)]) as server:
        code = """
        with xapi_cli.open_client(timeout=None) as client, client.stream("GET", "/") as response:
            print(response.is_stream_consumed, b"".join(response.iter_bytes()))
        """
        assert program(code, with_token(server)) == Outcome(0, "False b'ok'\n")


def test_the_password_command_of_a_profile_is_not_run_for_another_base_url(program: Program, sandbox: Sandbox) -> None:
    xapi = program.xapi
    xapi.config.mkdir()
    ran_at = xapi.home / "ran"
    (xapi.config / "config.toml").write_text(
        f"[profiles.play]\nbase_url = 'https://api.test'\nusername = 'me'\npassword_command = ['touch', '{ran_at}']\n"
    )
    ran = program(
        f"""
        with xapi_cli.open_client("play", base_url={sandbox.base_url!r}) as client:
            try:
                client.get("/x-api/me")
            except LoginNeeded as error:
                print(error.message)
        """,
        {},
    )

    assert ran == Outcome(
        0,
        f"the password_command of profile play is not run: it belongs to https://api.test, not to {sandbox.base_url}\n",
    )
    assert (sandbox.login_attempts, ran_at.exists()) == (0, False)
