"""The browser of the user who started the server."""

import webbrowser

from duckkb.serving.web.gate import ROOT

SIGN_IN_ONCE = f"{ROOT}/open?code="


def show(address: str) -> None:
    """Open a page in a graphical browser, if there is one: a text browser would take over the terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    is_of_text = isinstance(browser, webbrowser.GenericBrowser) and not isinstance(
        browser, webbrowser.BackgroundBrowser
    )
    if not is_of_text:
        browser.open(address)
