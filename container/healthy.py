#!/usr/bin/env python3
"""Exits with 0 if the service of this container accepts requests, and with 1 otherwise."""

import os
import sys
import urllib.request

address = f"http://127.0.0.1:{os.environ.get('NOISE2TEXT_PORT', '8000')}/readyz"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    direct.open(address, timeout=4).close()
except OSError as error:
    sys.exit(f"{address}: {error}")
