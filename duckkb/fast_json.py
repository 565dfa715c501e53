"""orjson, imported so that a signal cannot end the process in the middle of it.

While orjson loads, it imports modules of the standard library and asks them for attributes without looking whether the import
was successful. A signal that interrupts such an import would end the process by a segmentation fault. So they are there before.
"""

import dataclasses
import datetime
import enum
import json
import uuid

import orjson

ASKED_BY_ORJSON = (dataclasses, datetime, enum, json, uuid)
"""The modules that orjson asks for attributes while it loads."""

__all__ = ["ASKED_BY_ORJSON", "orjson"]
