"""The page of dependencies and the bill of materials agree with the lock files."""

import json
import re
from datetime import date
from importlib.metadata import distributions

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import xapi_cli
from tests.tools.release.dependencies import PAGE, Facts, checked_in, facts_in, page
from tests.tools.release.locks import LOCKS, USERS, Pin, for_development, read_lock
from tests.tools.release.registry import licenses
from tests.tools.release.sbom import SBOM, sbom

TEXT = PAGE.read_text()
FACTS = facts_in(TEXT)


def test_a_lock_states_which_packages_require_a_package() -> None:
    pins = read_lock(USERS)

    assert pins["idna"] == Pin("idna", pins["idna"].version, "", ("anyio", "httpx", "xapi"))
    assert pins["pywin32-ctypes"].marker == 'sys_platform == "win32"'
    assert [pin.name for path in LOCKS for pin in read_lock(path).values() if not pin.required_by] == []


def test_the_page_has_a_row_for_each_locked_package() -> None:
    assert FACTS.keys() == read_lock(USERS).keys() | for_development().keys()
    assert page(TEXT, FACTS, checked_in(TEXT)) == TEXT


def test_the_page_shows_a_newer_release_and_the_day_of_the_check() -> None:
    facts = {**FACTS, "h11": Facts("MIT", date(2030, 1, 2), "9.9"), "idna": Facts("MIT", date(2030, 1, 3), "3.0")}
    written = page(TEXT, facts, date(2030, 1, 4))

    row = f"| `h11` | {read_lock(USERS)['h11'].version} | MIT | 2030-01-02 (9.9) | `httpcore`, xapi |\n"
    assert (row in written, "package index on 2030-01-04" in written) == (True, True)
    assert (facts_in(written), checked_in(written)) == (facts, date(2030, 1, 4))


def test_the_licenses_on_the_page_are_those_of_the_installed_packages() -> None:
    pins = {**for_development(), **read_lock(USERS)}
    stated = {
        name: license_
        for package in distributions()
        for name, license_ in licenses([package]).items()
        if name in pins and package.version == pins[name].version
    }

    assert {name: FACTS[name].license for name in stated} == stated
    assert stated.keys() >= {Requirement(each).name for each in ("httpx", "typer", "keyring", "rich")}


def test_each_package_without_a_release_for_two_years_has_a_plan() -> None:
    checked = checked_in(TEXT)
    limit = checked.replace(year=checked.year - 2)
    section = TEXT.partition("## Without a release for two years\n")[2].partition("\n#")[0]
    for_users, _, tools = section.partition("\nTools:")

    old = {name for name, facts in FACTS.items() if facts.released < limit}
    assert set(re.findall(r"`([a-z\d-]+)`", for_users)) == (old & read_lock(USERS).keys()) | {"httpx"}
    assert set(re.findall(r"`([a-z\d-]+)`", tools)) == old - read_lock(USERS).keys()


# the bill of materials


def test_the_bill_of_materials_is_generated_from_the_lock() -> None:
    assert SBOM.read_text() == sbom(FACTS)


def test_the_bill_of_materials_is_valid_cyclonedx() -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)

    assert validator.validate_str(SBOM.read_text()) is None
    assert validator.validate_str(SBOM.read_text().replace('"application"', '"program"')) is not None


def test_the_bill_of_materials_has_the_locked_versions_and_what_requires_them() -> None:
    bill = json.loads(SBOM.read_text())
    pins = read_lock(USERS)

    assert {each["name"]: each["version"] for each in bill["components"]} == {
        name: pin.version for name, pin in pins.items()
    }
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/xapi-cli@{xapi_cli.__version__}"
    requires = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    h11 = f"pkg:pypi/h11@{pins['h11'].version}"
    assert h11 in requires[f"pkg:pypi/httpcore@{pins['httpcore'].version}"]
    assert h11 in requires[f"pkg:pypi/xapi-cli@{xapi_cli.__version__}"]
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert [scopes[canonicalize_name(name)] for name in ("httpx", "hiredis", "pywin32_ctypes")] == [
        "required",
        "optional",
        "optional",
    ]
