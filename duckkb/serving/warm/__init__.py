"""A warm process of a base and a user that answers reading commands without starting anew.

Its modules are imported and the model is loaded. Each command opens the base anew, as a cold command does, so
no answer is older than the files. `duckkb.warm_client` is the side that asks.
"""
