"""Take the picture of a review page for the guide: `python docs/picture.py PAGE.html docs/images/review.png`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser import browsing, chromium


def main(page: Path, picture: Path) -> None:
    browser = chromium()
    if browser is None:
        sys.exit("no Chromium is installed here: apt-get install -y chromium")
    with browsing(browser) as tab:
        tab.open(page.resolve())
        tab.dark(False)
        picture.write_bytes(tab.picture())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
