"""Fixtures of the tests of one request."""

import pytest

from tests.http.sending import Router


@pytest.fixture
def router() -> Router:
    return Router()
