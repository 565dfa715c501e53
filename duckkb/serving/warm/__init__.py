"""One process of a base and a user that answers commands which only read, so that they need not start from nothing: modules are
imported and the model is loaded. Each command opens the base anew, as one of its own process does, so no answer is older than
the files. `duckkb.warm_client` is the side that asks."""
