"""Fixtures of the tests of one request."""

import pytest

from tests.request.sending import Router


@pytest.fixture
def router() -> Router:
    return Router()
