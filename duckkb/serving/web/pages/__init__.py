"""The pages, one module each: a function of a `Visit` that asks actions and renders a template."""
