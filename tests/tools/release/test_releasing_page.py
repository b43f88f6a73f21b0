"""The workflow in docs/releasing.md is valid and grants only what it needs, and its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.pages import blocks_of
from tests.tools.documents import ROOT

TEXT = (ROOT / "docs" / "releasing.md").read_text()
(WORKFLOW,) = (block.text for block in blocks_of(TEXT) if block.language == "yaml")
JOBS = yaml.safe_load(WORKFLOW)["jobs"]


def is_valid(workflow: str, directory: Path) -> bool:
    file = directory / "release.yml"
    file.write_text(workflow)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(file)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def test_the_workflow_is_valid(tmp_path: Path) -> None:
    assert is_valid(WORKFLOW, tmp_path)
    assert not is_valid(WORKFLOW.replace("runs-on:", "runs:"), tmp_path)


def test_only_the_job_that_runs_no_code_of_the_project_can_publish() -> None:
    assert yaml.safe_load(WORKFLOW)["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "build": {"contents": "read"},
        "publish": {"id-token": "write"},
    }
    assert [step for step in JOBS["publish"]["steps"] if "run" in step or "checkout" in step["uses"]] == []


def test_the_workflow_builds_with_make_release() -> None:
    scripts = [step["run"] for step in JOBS["build"]["steps"] if "run" in step]

    assert "make release" in scripts
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
    assert set(re.findall(r"`make ([a-z-]+)`", TEXT)) <= set(targets)


def test_the_page_marks_what_is_not_tested() -> None:
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))

    assert {title for title, text in sections.items() if "**Not tested" in text} == {
        "Set up trusted publishing",
        "Publish",
        "Verify",
    }


def test_the_pages_agree_on_whether_a_version_was_published() -> None:
    denials = {
        "docs/install.md": "It is not published",
        "docs/releasing.md": "No version has been tagged or published yet",
        "SECURITY.md": "No version has been published yet",
    }

    assert len({phrase in " ".join((ROOT / page).read_text().split()) for page, phrase in denials.items()}) == 1
