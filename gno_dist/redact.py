"""Keeping secrets out of whatever leaves this process: by value, and by the name beside one.

Values are those of environment variables whose names say that they are secret. Messages lose both
kinds; what users wrote and models said loses known values only, since a text about passwords is no
secret. Knows nothing of files or formats, but keeps JSON valid: what it writes needs no escape.
"""

import base64
import os
import re
from collections.abc import Mapping
from functools import cache
from json.encoder import encode_basestring, encode_basestring_ascii
from urllib.parse import quote

LEAST_LENGTH = 8
"""Shorter values stand by chance in other texts, and are no secrets worth the name."""
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|SECRET_?KEY|PRIVATE_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|"
    r"PASSPHRASE|CREDENTIALS?|AUTHORIZATION)(?:$|_\d*$)"
)
_WRITTEN = re.compile(
    r"""(?P<name>
          (?:\b|_)(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|access[_-]?token|auth[_-]?token|
             password|passwd|x-api-key)\\?["']?\s*[:=]\s*\\?["']?
        | \bauthorization\\?["']?\s*[:=]\s*\\?["']?(?:(?:bearer|basic)\s+)?(?!bearer|basic)
        | \bbearer\s+
        | ://[^\s/:@"']{1,100}:(?=[^\s/@"']{1,200}@)
        )
        (?P<value>[^\s"'\\,;&@\[\]{}()<>]{6,})""",
    re.IGNORECASE | re.VERBOSE,
)
_HINTS = ("key", "secret", "password", "passwd", "token", "bearer", "authorization", "://")
"""What the pattern needs in the lower-cased text: looking for that first is ten times faster."""
REDACTED = "[redacted]"


def is_secret(name: str) -> bool:
    """Whether a setting or variable of this name holds a secret; names of files do not."""
    return _SECRET_NAME.search(name.upper().replace("-", "_")) is not None


class Redactor:
    """Replaces secrets in texts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        secrets = {
            value.strip(): name
            for name, value in environment.items()
            if is_secret(name) and len(value.strip()) >= LEAST_LENGTH
        }
        self._plain = _Values({form: name for v, name in secrets.items() for form in _forms(v)})
        self._in_json = _Values(
            {form: name for v, name in secrets.items() for form in (*_in_json(v), *_coded(v))}
        )

    def text(self, text: str) -> str:
        """A message without known values, nor what stands beside a name like ``api_key``."""
        text = self._plain.replace(text)
        lowered = text.lower()
        if any(hint in lowered for hint in _HINTS):
            text = _WRITTEN.sub(lambda found: f"{found['name']}{REDACTED}", text)
        return text

    def content(self, text: str) -> str:
        """A text that holds what users wrote or models said: known values only are replaced."""
        return self._plain.replace(text)

    def json(self, data: bytes) -> bytes:
        """The same for JSON or other UTF-8 text; JSON stays JSON."""
        if self._in_json.pattern is None:
            return data
        return self._in_json.replace(data.decode("utf-8")).encode("utf-8")


class _Values:
    def __init__(self, names: Mapping[str, str]) -> None:
        # The longest first: a value inside another must leave no rest of it.
        ordered = sorted(names, key=len, reverse=True)
        self._names = names
        self.pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def replace(self, text: str) -> str:
        if self.pattern is None:
            return text
        return self.pattern.sub(lambda found: f"[redacted {self._names[found[0]]}]", text)


def _forms(value: str) -> set[str]:
    return {value, *_in_json(value), *_coded(value)}


def _in_json(value: str) -> set[str]:
    return {encode_basestring(value)[1:-1], encode_basestring_ascii(value)[1:-1]}


def _coded(value: str) -> set[str]:
    """As it stands in a URL, and in base64."""
    return {quote(value, safe=""), base64.b64encode(value.encode("utf-8")).decode().rstrip("=")}


@cache
def redactor() -> Redactor:
    """The redactor of this process's environment, as it was at the first use."""
    return Redactor(os.environ)
