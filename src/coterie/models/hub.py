"""Checks once, with a short time-out, whether the Hugging Face Hub can be reached. Cached files do not need it."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request

from huggingface_hub.constants import ENDPOINT

PATIENCE_S = 10.0
"""Seconds that an answer may take."""


def answers() -> bool:
    """Returns True if the hub answers."""
    question = urllib.request.Request(ENDPOINT, method="HEAD")  # noqa: S310  (the hub's address, set by a person)
    try:
        urllib.request.urlopen(question, timeout=PATIENCE_S).close()  # noqa: S310
    except urllib.error.HTTPError:  # any answer, even an error, shows that the hub can be reached
        return True
    except (OSError, ValueError) as error:
        # the hub is there and only its certificate fails, which is for its client to handle
        return isinstance(getattr(error, "reason", None), ssl.SSLError)
    return True
