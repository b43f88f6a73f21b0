"""The software bill of materials that each wheel contains (PEP 770), in the format of CycloneDX.

It has neither a time nor a random number, so that the same locks result in the same file.
"""

import json
import tomllib
from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement

import xapi_cli
from tests.tools.documents import ROOT
from tests.tools.release.dependencies import PAGE, Facts, facts_in
from tests.tools.release.locks import USERS, Pin, read_lock

SBOM = ROOT / "docs/xapi-cli.cdx.json"

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {Requirement(each).name for extra in _PROJECT["optional-dependencies"].values() for each in extra}


def sbom(facts: Mapping[str, Facts]) -> str:
    """Return the bill of materials for requirements.txt, with the licenses in *facts*."""
    pins = read_lock(USERS)
    root = _purl("xapi-cli", xapi_cli.__version__)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, root + USERS.read_text())}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "xapi-cli",
                "version": xapi_cli.__version__,
                "purl": root,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": [_component(pin, facts[pin.name].license) for pin in pins.values()],
        "dependencies": [
            _requires(root, "xapi", pins),
            *(_requires(_ref(pin), pin.name, pins) for pin in pins.values()),
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(pin: Pin, license_: str) -> dict[str, Any]:
    """Describe *pin*; *scope* is optional if the package is installed only on some systems or with an extra."""
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _ref(pin),
        "name": pin.name,
        "version": pin.version,
        "scope": "optional" if pin.marker or pin.name in EXTRAS else "required",
        "licenses": [_license(license_)],
        "purl": _ref(pin),
    }
    if pin.marker:
        component["properties"] = [{"name": "python:marker", "value": pin.marker}]
    return component


def _license(text: str) -> dict[str, Any]:
    if " OR " in text:
        return {"expression": text}
    return {"license": {"name" if " " in text else "id": text}}


def _requires(ref: str, name: str, pins: Mapping[str, Pin]) -> dict[str, Any]:
    return {"ref": ref, "dependsOn": [_ref(pin) for pin in pins.values() if name in pin.required_by]}


def _ref(pin: Pin) -> str:
    return _purl(pin.name, pin.version)


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


if __name__ == "__main__":
    SBOM.write_text(sbom(facts_in(PAGE.read_text())))
