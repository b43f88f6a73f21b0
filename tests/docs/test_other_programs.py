"""The recipes of docs/other-programs.md, with the programs, or with their files where a program cannot run in a test.

VS Code and Postman have no command line for this, so the requests of their files are sent by httpx, with the variables
that the programs would insert. The shell examples of the page are run by test_docs.
"""

import json
import re
import shutil
import sys

import httpx
import pytest

from tests.proxy.running import Proxy, proxy
from tests.support.pages import TEXTS, blocks_of
from tests.support.program import Xapi
from xapi_cli.sandbox import MASTER, Sandbox

TEXT = TEXTS["docs/other-programs.md"]


def recipe(title: str) -> str:
    """Return the first block of the recipe *title*."""
    section = TEXT[TEXT.index(f"\n### {title}\n") :]
    return blocks_of(section)[0].text


@pytest.mark.parametrize(
    "title, command", [("Python", (sys.executable, "-c")), ("Node", ("node", "--input-type=module", "-e"))]
)
def test_the_program_of_a_recipe_runs(xapi: Xapi, sandbox: Sandbox, title: str, command: tuple[str, ...]) -> None:
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")

    outcome = xapi("proxy", "--quiet", "--", *command, recipe(title), env=sandbox.settings, timeout=60)

    assert outcome.code == 0, outcome.err  # some versions of Node warn that fetch is experimental
    assert MASTER.email in outcome.out


def filled_in(text: str, values: dict[str, str]) -> str:
    """Return *text* with each `{{name}}` replaced by its value."""
    return re.sub(r"\{\{(.*?)\}\}", lambda found: values[found[1]], text)


def sent(text: str) -> httpx.Response:
    """Send *text*, a request of a file of REST Client: a request line with a URL, headers, and a body."""
    head, _, body = text.strip().partition("\n\n")
    line, *fields = head.splitlines()
    method, url = line.split()
    headers = dict(field.split(": ", 1) for field in fields)
    return httpx.request(method, url, headers=headers, content=body, trust_env=False, timeout=60)


def test_the_requests_for_rest_client(xapi: Xapi, sandbox: Sandbox) -> None:
    with proxy(xapi, sandbox.settings) as running:
        values = {f"$processEnv {name}": value for name, value in running.settings.items()}
        me, echo = [sent(each) for each in filled_in(recipe("VS Code REST Client"), values).split("###\n")]

    assert me.json()["email"] == MASTER.email
    assert echo.json()["json"] == {"name": "test"}


def test_the_collection_for_postman(xapi: Xapi, sandbox: Sandbox) -> None:
    def enter(running: Proxy, text: str) -> str:
        variables = {each["key"]: each["value"] for each in json.loads(text)["variable"]}
        assert variables == {"baseUrl": "http://127.0.0.1:8766", "key": ""}
        return filled_in(text, {"baseUrl": running.url, "key": running.settings["XAPI_TOKEN"]})

    with proxy(xapi, sandbox.settings) as running:
        collection = json.loads(enter(running, recipe("Postman")))
        (parameter,), (item,) = collection["auth"]["bearer"], collection["item"]
        found = httpx.request(
            item["request"]["method"],
            item["request"]["url"],
            headers={"Authorization": f"{collection['auth']['type'].title()} {parameter['value']}"},
            trust_env=False,
        )

    assert found.json()["email"] == MASTER.email


def test_the_page_is_short_and_names_each_way() -> None:
    assert len(TEXT.split()) < 1800
    for way in ("token show", "exec", "open_client", "proxy"):
        assert re.search(rf"^\| [^|]+ \| \[`(?:xapi )?{way}\b", TEXT, re.MULTILINE), way
