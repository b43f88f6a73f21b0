"""Paths lead to operations: templates, base paths, suggestions."""

import pytest

from tests.openapi.documents import index_of, index_of_paths
from xapi_cli.openapi.routes import Routes
from xapi_cli.openapi.templates import placeholders

API = (
    "/users",
    "/users/me",
    "/users/{id}",
    "/users/{id}/keys",
    "/files/{path}",
    "/reports/{year}.{format}",
    "/slash/",
    "/a b/{x}",
)


def routes(*paths: str, server: str = "", base: str = "") -> Routes:
    return Routes(index_of_paths(*(paths or API), server=server), base)


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/users", "/users"),
        ("/users/me", "/users/me"),
        ("/users/7", "/users/{id}"),
        ("/users/{id}", "/users/{id}"),
        ("/users/me/keys", "/users/{id}/keys"),
        ("/users/", None),
        ("/users/7/key", None),
        ("/reports/2026.csv", "/reports/{year}.{format}"),
        ("/reports/.", "/reports/{year}.{format}"),
        ("/reports/2026", "/reports/{year}.{format}"),
        ("/a%20b/%2F", "/a b/{x}"),
        ("/USERS", None),
        ("", None),
    ],
)
def test_a_path_has_the_operations_of_its_most_specific_template(path: str, template: str | None) -> None:
    assert [entry.path for entry in routes().find(path)] == ([template] if template else [])


def test_of_templates_that_differ_in_their_query_the_one_that_is_the_path_counts() -> None:
    found = routes("/verify#by=person", "/verify", "/verify?by=face")

    assert [entry.path for entry in found.find("/verify")] == ["/verify"]
    assert [entry.path for entry in found.find("/verify#by=person")] == ["/verify#by=person"]
    assert len(next(found.matches("/verify"))) == 3


def test_a_parameter_at_the_end_may_take_the_rest_of_a_path() -> None:
    assert [entry.path for entry in routes().find_prefix("/files/a/b/c")] == ["/files/{path}"]
    assert routes().find_prefix("/users/7/x") == []  # /users/{id}/keys continues it


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("/user", "/users"),
        ("/user/7", "/users/7"),
        ("/users/7/kyes", "/users/7/keys"),
        ("/users/", "/users"),
        ("/slash", "/slash/"),
        ("/projects", None),
        ("/x/y/z", None),
        ("", None),
    ],
)
def test_a_suggestion_has_one_other_segment_and_the_values_of_the_path(path: str, suggestion: str | None) -> None:
    assert routes().closest(path) == suggestion


def test_a_suggestion_is_found_among_many_words() -> None:
    templates = [f"/{kind}{number}/{{id}}/x{n}" for kind in "ab" for number in range(60) for n in range(60)]
    many = routes(*templates, *(f"/flat/{number:05}" for number in range(5000)))

    assert many.closest("/b50/7/xx57") == "/b50/7/x57"
    assert many.closest("/b500/7/x57") == "/b50/7/x57"
    assert many.closest("/flat/04321x") == "/flat/04321"


@pytest.mark.parametrize(
    ("incomplete", "paths"),
    [
        ("", ["/v2/{region}/users"]),
        ("/v", ["/v2/{region}/users"]),
        ("/v2/eu", ["/v2/eu/users"]),
        ("/v2/eu/u", ["/v2/eu/users"]),
        ("/v3", []),
        ("v", []),
    ],
)
def test_a_server_path_completes_with_the_values_that_were_typed(incomplete: str, paths: list[str]) -> None:
    node = {"swagger": "2.0", "basePath": "/v2/{region}", "paths": {"/users": {"get": {}}}}

    assert Routes(index_of(node), "").completions(incomplete) == paths


@pytest.mark.parametrize("template", ["/a/{id", "/a/}", "/a/{", "/a/{{id}", "/a/{x{y}}"])
def test_a_template_with_a_brace_that_is_not_closed_is_no_error(template: str) -> None:
    found = routes(template, "/b")

    assert [entry.path for entry in found.find(template)] == [template]
    assert found.find("/a/7/x") == []
    assert found.closest("/bb") == "/b"
    assert found.completions("/a") == [template]


@pytest.mark.parametrize(
    ("server", "base", "path"),
    [
        ("", "", "/users"),
        ("/v1", "", "/v1/users"),
        ("/v1", "/v1", "/users"),
        ("/v1", "/v1/", "/users"),
        ("/v1/x", "/v1", "/x/users"),
        ("/v12", "/v1", "/users"),
        ("", "/gateway", "/users"),
    ],
)
def test_a_path_is_as_the_user_writes_it_below_the_base_url(server: str, base: str, path: str) -> None:
    found = routes("/users", server=server, base=base)

    assert found.completions("") == [path]
    assert [found.path(entry) for entry in found.find(path)] == [path]


def test_paths_that_start_with_the_base_path_are_shown_without_it() -> None:
    assert routes("/api/users", "/api/keys", base="/api").completions("") == ["/keys", "/users"]
    assert routes("/api/users", "/keys", base="/api").completions("") == ["/api/users", "/keys"]


@pytest.mark.parametrize(
    ("incomplete", "paths"),
    [
        ("", sorted(API)),
        ("/us", ["/users", "/users/me", "/users/{id}", "/users/{id}/keys"]),
        ("/users/", ["/users/me", "/users/{id}", "/users/{id}/keys"]),
        ("/users/m", ["/users/me"]),
        ("/users/7", ["/users/7", "/users/7/keys"]),
        ("/users/7/", ["/users/7/keys"]),
        ("/users/{id}/k", ["/users/{id}/keys"]),
        ("/x", []),
    ],
)
def test_paths_complete_with_the_values_that_were_typed(incomplete: str, paths: list[str]) -> None:
    assert routes().completions(incomplete) == paths


def test_parameters_without_a_value_are_found() -> None:
    assert placeholders("/users/{id}/keys", ["/users/{id}/keys"]) == ["{id}"]
    assert placeholders("/users/7/keys", ["/users/{id}/keys"]) == []
    assert placeholders("/users/{x}", ["/users/{id}"]) == []
