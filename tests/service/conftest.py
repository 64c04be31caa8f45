"""Servers that tests share. Each test that asks for one is slow, and skipped where it is not installed."""

from collections.abc import Generator

import pytest

from tests.service.servers import Postgresql, postgresql, programs_of_postgresql


@pytest.fixture(scope="session")
def database_server() -> Generator[Postgresql]:
    pytest.importorskip("psycopg", reason="needs the extra [postgresql]")
    programs = programs_of_postgresql()
    if programs is None:
        pytest.skip("needs PostgreSQL's server: apt-get install postgresql")
    with postgresql(programs) as server:
        yield server
