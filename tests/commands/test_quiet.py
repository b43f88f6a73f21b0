"""With `--quiet` or XAPI_QUIET, stderr has only warnings and errors."""

from tests.commands.api import bearing, response
from tests.support.program import PYTHON, Outcome, Xapi
from tests.support.servers import OK, Server, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox

QUIET = {"XAPI_QUIET": "1"}


def test_the_flag_and_the_variable_silence_the_notes_of_a_login(xapi: Xapi, sandbox: Sandbox) -> None:
    args = ("login", "--base-url", sandbox.base_url, "-u", MASTER.email, "--password-stdin")

    assert xapi(*args, input=MASTER.password).err.startswith("xapi: logged in")
    assert xapi(*args, "--quiet", input=MASTER.password) == Outcome(0)
    assert xapi(*args, input=MASTER.password, env=QUIET) == Outcome(0)
    assert xapi("logout", "--quiet") == Outcome(0)


def test_the_note_about_a_retry_is_omitted_and_the_error_is_not(xapi: Xapi) -> None:
    busy = response("503 Busy", b"", "Retry-After: 0")
    with Server([request(), send(busy), request(), send(busy)]) as server:
        outcome = xapi("request", "/", "--retry", "1", "--quiet", env=bearing(server))

    assert outcome == Outcome(5, "", f"xapi: error: GET {server.url}/ responded with 503 Busy; try again later\n")


def test_a_batch_prints_no_summary(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        outcome = xapi("batch", "--quiet", input='{"path":"/"}', env=bearing(server))

    assert (outcome.code, outcome.err) == (0, "")


def test_progress_is_omitted_as_it_is_beside_json(xapi: Xapi) -> None:
    code = """if True:
        from xapi_cli.system.terminal import Terminal
        for values in (False, False), (True, False), (False, True):
            terminal = Terminal({})
            terminal.is_quiet, terminal.has_json_messages = values
            print(terminal.shows_progress)
    """
    with xapi.on_terminal("-c", code, program=PYTHON) as terminal:
        assert terminal.wait() == 0
    assert terminal.text.split() == ["True", "False", "False"]


def test_warnings_remain(xapi: Xapi) -> None:
    outcome = xapi("token", "status", "--quiet", env={"XAPI_TOKEN": "abc"})

    assert outcome.err.startswith("xapi: warning: XAPI_TOKEN ")
