"""A page of hostile names in a real browser: nothing runs, nothing is fetched; light, dark, narrow and on paper."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kretain.render.page.pages import plan_page
from tests.support.pages import DISKS, HOSTILE, plan, row

SCRIPT = Path(__file__).parents[2] / "support" / "browser.mjs"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What Chromium sees; it is npm's, as a package has it whole."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("browser")
    wanted = ("@sparticuz/chromium", "puppeteer-core")
    run = subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *wanted], check=False)
    if run.returncode:
        pytest.skip("npm can't install a Chromium here")
    (folder / "package.json").touch()
    file = folder / "page.html"
    rows = [row(HOSTILE, 0, f"group:{HOSTILE}", HOSTILE), row("orders", 3)]
    file.write_text(plan_page(plan(*rows, source=HOSTILE), DISKS, []), encoding="utf-8")
    found = subprocess.run(
        [node, str(SCRIPT), str(folder), file.as_uri(), str(folder)], check=True, capture_output=True, timeout=200
    )
    return json.loads(found.stdout) | {"file": file.as_uri()}


@pytest.mark.long
def test_page_runs_no_script_and_fetches_nothing(seen: Any) -> None:
    assert seen["said"] == []
    assert seen["asked"] == [seen["file"]]
    assert {one["odd"] for one in seen["looks"].values()} == {0}


@pytest.mark.long
def test_page_follows_the_color_scheme_and_prints_on_white(seen: Any) -> None:
    looks = seen["looks"]
    assert len({looks[name]["paper"] for name in ("light", "dark", "print")}) == 3
    assert looks["light"]["bar"] != looks["dark"]["bar"]
    assert (looks["print"]["paper"], looks["print"]["ink"]) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")
    assert not any(one["overflows"] for one in looks.values())
