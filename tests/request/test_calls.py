from xapi_cli.request.calls import Call


def test_the_repr_contains_no_secret() -> None:
    call = Call("GET", "https://api.test/a?token=CANARY", (("Authorization", "Bearer CANARY"),))

    assert "CANARY" not in repr(call)
    assert "https://api.test/a" in repr(call)
