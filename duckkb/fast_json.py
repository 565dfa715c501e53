"""orjson, imported so that a signal cannot crash the process during the import.

While orjson loads, it imports modules of the standard library and reads their attributes without checking for
errors. A signal that interrupts such an import would end the process with a segmentation fault. This module
imports them first.
"""

import dataclasses
import datetime
import enum
import json
import uuid

import orjson

ASKED_BY_ORJSON = (dataclasses, datetime, enum, json, uuid)
"""The modules whose attributes orjson reads while it loads."""

__all__ = ["ASKED_BY_ORJSON", "orjson"]
