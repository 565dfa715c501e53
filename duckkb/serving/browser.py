"""The browser of whoever started the server."""

import webbrowser

from duckkb.serving.web.gate import ROOT

SIGN_IN_ONCE = f"{ROOT}/open?code="


def show(address: str) -> None:
    """Have a browser with windows show a page, if there is one: one of text would take over the terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    is_of_text = isinstance(browser, webbrowser.GenericBrowser) and not isinstance(
        browser, webbrowser.BackgroundBrowser
    )
    if not is_of_text:
        browser.open(address)
