"""The reading room: the pages of a served base, for people with a browser.

They show the answers of actions.
"""
